"""`edgeflock gateway`: hold devices' connections for a server."""

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import (
    Format,
    Json,
    Level,
    LogFormat,
    LogLevel,
    TokenFile,
    log_to_stderr,
    on_end_signals,
    print_json,
    require,
    token_in,
)
from edgeflock.cli.supervisor import supervised


def gateway(
    upstream: Annotated[
        str, typer.Option(metavar="URL", help="The run's server; with standbys all servers, with commas.")
    ],
    token: Annotated[
        str | None,
        typer.Option(
            envvar="EDGEFLOCK_TOKEN",
            show_envvar=False,
            help="A token of the role gateway. Others see it in `ps`; use --token-file or "
            "EDGEFLOCK_TOKEN instead.",
        ),
    ] = None,
    token_file: TokenFile = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8470,
    certificate: Annotated[
        Path | None, typer.Option(help="The server's certificate in PEM, whose key devices compare.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key in PEM.")] = None,
    identity: Annotated[
        Path | None,
        typer.Option(
            help="An identity file from `client join`, whose certificate it shows if "
            'server.client_certificates = "everybody".'
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name for operators; empty: host name and port.")] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain HTTP beyond this machine.")
    ] = False,
    json: Json = False,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = Format.text,
) -> None:
    """Hold devices' connections for a server, until interrupted; see docs/gateways.md."""
    import asyncio

    from edgeflock.client.identity import load_identity

    log_to_stderr(log_level, log_format)
    secret = token if token_file is None else token_in(token_file)
    with require("server", "a gateway needs"):
        from edgeflock.server.gateway import ClientCertificate, Gateway, GatewayAddress
    own = None if identity is None else load_identity(identity)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        on_end_signals(stop.set)
        address = GatewayAddress(host, port, certificate, key, insecure)
        certified = None if own is None else ClientCertificate(own.key, own.certificate)
        one = Gateway(upstream, secret or "", name, address, certified, insecure=insecure)
        async with one.serving() as bound:
            url = f"{'https' if key else 'http'}://{host}:{bound}"
            if json:
                print_json({"url": url, "name": one.name})
            else:
                print(f"Gateway {one.name} on {url}, for {upstream}", file=sys.stderr)
            async with supervised(lambda: one.status):
                await one.serve_until(stop)
        print("stopped by a signal; devices go to another gateway, or to the server", file=sys.stderr)

    gc.freeze()
    asyncio.run(until_stopped())
