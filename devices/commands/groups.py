"""Commands with others below them: their help says of each the whole first sentence, however long."""

import click
import typer.core

_ANY_LENGTH = 1 << 20

# With rich at hand typer escapes brackets for it, though no command here is shown by rich.
typer.core.HAS_RICH = False


class Group(typer.core.TyperGroup):
    """One whose help cuts no sentence off."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        below = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(_ANY_LENGTH))
            for name, one in below
            if one is not None and not one.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
