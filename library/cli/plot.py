"""`edgeflock plot`: the figures of the monitor as a file."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, Set, Token, TokenFile, connection_of, require


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
