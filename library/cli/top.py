"""`edgeflock top`: watch runs in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import TOKEN_WARNING, Set, connection_of, token_in
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command


def top(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="[URL]...", help="Servers, one in each tab [client.server].")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A viewer's or an admin's token [client.token]; repeat it for each server. {TOKEN_WARNING}"
        ),
    ] = None,
    token_file: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="A file with a token; repeat it for each server."),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between frames.")] = 1.0,
    record: Annotated[Path | None, typer.Option(help="Write the frames to this new file.")] = None,
    replay: Annotated[
        list[Path] | None, typer.Option(help="Show a recording, or a server's journal.sqlite, instead.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.01, help="Speed of a replay.")] = 1.0,
    at: Annotated[str, typer.Option(help="Start of a replay: 12:30, or 40%.")] = "",
    set_: Set = None,
) -> None:
    """Watch runs in the terminal; see docs/top.md."""
    import importlib.util

    if importlib.util.find_spec("textual") is None:
        raise ConfigError(f"the monitor needs textual: {install_command('tui')}")
    from edgeflock.operations.top import TopOptions, show

    if token and token_file:
        raise ConfigError("--token and --token-file: give one of them")
    url, secret = connection_of(None, None, None, set_)
    tokens = token or [token_in(path) for path in token_file or []] or [secret]
    for number, one in enumerate([] if replay else urls or [url]):
        connection_of(one, tokens[number % len(tokens)], None, set_)  # whether a token may go there
    show(TopOptions(urls or [url], tokens, interval, record, replay or [], speed, at))
