"""Commands with others below them: their help says of each the whole first sentence, however long."""

from typing import Any

import click
import typer.core

_ANY_LENGTH = 1 << 20

# With rich at hand typer escapes brackets for it, though no command here is shown by rich.
typer.core.HAS_RICH = False

_make_argument = typer.core.TyperArgument.__init__


def _make_argument_with_help(argument: typer.core.TyperArgument, **made: Any) -> None:
    _make_argument(argument, **made)
    argument.help = made.get("help")


# click 8.5 forgets the help that typer has given an argument, and would list arguments that typer lists.
typer.core.TyperArgument.__init__ = _make_argument_with_help  # type: ignore[method-assign,assignment]
typer.core.TyperCommand.format_arguments = lambda *_: None  # type: ignore[method-assign]


class Group(typer.core.TyperGroup):
    """One whose help cuts no sentence off."""

    format_arguments = typer.core.TyperCommand.format_arguments

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        below = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(_ANY_LENGTH))
            for name, one in below
            if one is not None and not one.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
