"""Commands with subcommands. Their help shows the whole first sentence of each subcommand."""

from typing import Any

import click
import typer.core

_ANY_LENGTH = 1 << 20

# If rich is installed, typer escapes brackets for it, although no command here uses rich.
typer.core.HAS_RICH = False

_make_argument = typer.core.TyperArgument.__init__


def _make_argument_with_help(argument: typer.core.TyperArgument, **arguments: Any) -> None:
    _make_argument(argument, **arguments)
    argument.help = arguments.get("help")


# click 8.5 drops the help that typer has given an argument, and lists arguments that typer lists too.
typer.core.TyperArgument.__init__ = _make_argument_with_help  # type: ignore[method-assign,assignment]
typer.core.TyperCommand.format_arguments = lambda *_: None  # type: ignore[method-assign]


class Group(typer.core.TyperGroup):
    """A group whose help does not truncate sentences."""

    format_arguments = typer.core.TyperCommand.format_arguments

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(_ANY_LENGTH))
            for name, one in commands
            if one is not None and not one.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
