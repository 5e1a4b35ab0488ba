"""`edgeflock status`: how a run is doing, as text or JSON."""

from typing import Annotated

import typer

from edgeflock.cli.options import Json, Set, Token, TokenFile, Url, connection_of


def status(
    url: Url = None,
    token: Token = None,
    token_file: TokenFile = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat it while the run goes on.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds of --watch's pauses.")] = 2.0,
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
    from edgeflock.operations import text
    from edgeflock.operations.status import show_status

    if device is not None:
        text.show_device(server, secret, device, as_json=json)
    elif watch:
        text.watch(server, secret, interval, as_json=json)
    else:
        show_status(server, secret, as_json=json, labels=label or ())
