"""`edgeflock run`: the runs of a server that hosts a folder of them."""

import sys
from typing import Annotated

import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import Json, Set, Token, TokenFile, Url, connection_of, print_json

run = typer.Typer(
    cls=Group, no_args_is_help=True, help="List, pause, resume and archive the runs of a server of several."
)

ServerUrl = Annotated[str, typer.Argument(metavar="URL", help="The server's URL, without a run.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The run.")]


@run.command("list")
def list_(
    url: Url = None, token: Token = None, token_file: TokenFile = None, set_: Set = None, json: Json = False
) -> None:
    """List the runs that the token shows: all, with the token of the server; else those that know it."""
    server, secret = connection_of(url, token, token_file, set_)
    from rich.console import Console

    from edgeflock.operations.runs import list_runs, print_runs

    rows = list_runs(server, secret)
    if json:
        print_json({"runs": rows})
    else:
        print_runs(Console(width=None if sys.stdout.isatty() else 10_000), rows)


@run.command()
def pause(
    url: ServerUrl, name: Name, token: Token = None, token_file: TokenFile = None, set_: Set = None
) -> None:
    """End a run's process until it is resumed. Its devices wait, and come back by themselves."""
    _act("pause", url, name, token, token_file, set_)


@run.command()
def resume(
    url: ServerUrl, name: Name, token: Token = None, token_file: TokenFile = None, set_: Set = None
) -> None:
    """Start a paused or failed run again, with the settings that its file now has."""
    _act("resume", url, name, token, token_file, set_)


@run.command()
def archive(
    url: ServerUrl, name: Name, token: Token = None, token_file: TokenFile = None, set_: Set = None
) -> None:
    """Save a run's model, end the run for good, and move its files to the folder `archive`."""
    _act("archive", url, name, token, token_file, set_)


def _act(
    action: str, url: str, name: str, token: str | None, token_file: TokenFile, set_: list[str] | None
) -> None:
    server, secret = connection_of(url, token, token_file, set_)
    from edgeflock.operations.runs import act_on_run

    print(act_on_run(server, secret, action, name))
