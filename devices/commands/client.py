"""`edgeflock client`: train on this machine's data."""

import signal
import sys
from contextlib import suppress
from typing import Annotated

import typer

from edgeflock.devices.commands.options import (
    ConfigFile,
    Set,
    Token,
    TokenFile,
    Verbose,
    client_flags,
    settings_of,
    token_of,
)


def client(
    config: ConfigFile = None,
    server: Annotated[str | None, typer.Option(help="The server's URL [client.server].")] = None,
    token: Token = None,
    token_file: TokenFile = None,
    name: Annotated[str | None, typer.Option(help="This device [client.name]; default: host name.")] = None,
    data: Annotated[str | None, typer.Option(help="Training data [client.data], e.g. npz:my.npz.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, onnx or torch [client.backend].")] = None,
    model: Annotated[str | None, typer.Option(help="package.module:Name, for torch [client.model].")] = None,
    graph_digest: Annotated[
        str | None, typer.Option(help="The one graph to train, for onnx [client.graph_digest].")
    ] = None,
    set_: Set = None,
    verbose: Verbose = False,
) -> None:
    """Train for a server on this machine's data, until its run is over."""
    import asyncio

    secret = token_of(token, token_file)
    flags = client_flags(
        server=server,
        token=secret,
        name=name,
        data=data,
        backend=backend,
        model=model,
        graph_digest=graph_digest,
    )
    settings = settings_of(config, [*(set_ or []), *flags], verbose)
    from edgeflock.client.run import run_client

    async def until_stopped() -> None:
        training = asyncio.create_task(
            run_client(settings.client, lambda account: print(account, file=sys.stderr))
        )
        with suppress(NotImplementedError):  # where there are no such signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, training.cancel, "terminated")
        try:
            progress = await training
        except asyncio.CancelledError as cancelled:
            if cancelled.args != ("terminated",):
                raise
            print("stopped, as it was asked to", file=sys.stderr)
        else:
            print(f"{progress.updates} updates from {progress.samples} samples", file=sys.stderr)

    asyncio.run(until_stopped())
