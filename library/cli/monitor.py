"""`edgeflock status`, `top` and `plot` show a run, and `rollback` takes back its last updates."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import (
    TOKEN_WARNING,
    Json,
    Set,
    Token,
    TokenFile,
    Url,
    connection_of,
    print_json,
    require,
    token_in,
)
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command


def status(
    url: Url = None,
    token: Token = None,
    token_file: TokenFile = None,
    device: Annotated[str | None, typer.Option(help="One device, with its recent updates.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only devices with this label [client.labels]; may repeat."),
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show how a server's run is doing: everything that `edgeflock top` shows."""
    server, secret = connection_of(url, token, token_file, set_)
    from edgeflock.operations.status import show_status
    from edgeflock.operations.text import show_device

    if device is not None:
        show_device(server, secret, device, as_json=json)
    else:
        show_status(server, secret, as_json=json, labels=label or ())


def plot(
    source: Annotated[
        str | None, typer.Argument(help="A server's URL [client.server], a recording or a journal.")
    ] = None,
    token: Token = None,
    token_file: TokenFile = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .png or .svg file.")] = Path("edgeflock.png"),
    against: Annotated[str, typer.Option(help="time, updates or bytes.")] = "time",
    seconds: Annotated[
        float, typer.Option(min=0, help="Seconds to watch a live server, which does not store its rates.")
    ] = 0.0,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Draw the figures of `edgeflock top`'s overview."""
    with require("demo", "figures need"):
        from edgeflock.operations.plot import plot as draw

    url, secret = connection_of(source, token, token_file, set_)
    draw(url, secret, against, out, seconds, as_json=json)


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


def rollback(
    version: Annotated[int, typer.Argument(min=0, help="The version to go back to.")],
    url: Url = None,
    token: Token = None,
    token_file: TokenFile = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Let a running server go on from an earlier version of its model, which becomes the next version.

    It needs the admin token. Nothing is lost: receipts stay valid, versions count on, and a rollback can be
    rolled back, too. Devices receive the whole model and go on.
    """
    server, secret = connection_of(url, token, token_file, set_)
    import asyncio

    from edgeflock.operations.status import roll_back

    done = asyncio.run(roll_back(server, secret, version))
    if json:
        print_json(done)
        return
    if done["of"] != version:
        print(f"Version {version} is in the middle of a round, which started from version {done['of']}.")
    print(f"The model is that of version {done['of']:,} again, as version {done['version']:,}.")
