"""`edgeflock client`: join a run, and train on this machine's data."""

import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import click
import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import (
    ConfigFile,
    Format,
    Level,
    LogFormat,
    LogLevel,
    Set,
    TokenFile,
    client_flags,
    load_settings,
    log_to_stderr,
    token_in,
)
from edgeflock.cli.supervisor import LastLine, supervised
from edgeflock.shared.errors import ConfigError


class _Training(Group):
    """`edgeflock client ...` trains, unless its next word is `join`."""

    def parse_args(self, context: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        asks = bool(args) and args[0] in context.help_option_names
        if not asks and (not args or args[0] not in self.commands):
            args = ["train", *args]
        return super().parse_args(context, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of training, and the other commands."""
        train = self.commands["train"]
        with click.Context(train, parent=ctx.parent, info_name=ctx.info_name) as training:
            train.format_help(training, formatter)
        self.format_commands(ctx, formatter)


client = typer.Typer(cls=_Training, help="Train for a server on this machine's data; `join` it first.")

Server = Annotated[
    str | None, typer.Option(help="The server's URL [client.server]; default: the server that it joined.")
]
IdentityFile = Annotated[
    Path | None,
    typer.Option("--identity", metavar="PATH", help="The identity file of this device [client.identity]."),
]


@client.command()
def train(
    config: ConfigFile = None,
    server: Server = None,
    identity: IdentityFile = None,
    name: Annotated[
        str | None,
        typer.Option(help="This device's name [client.name]; default: as it joined, or host and machine id."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Training data [client.data], e.g. npz:my.npz.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, onnx or torch [client.backend].")] = None,
    model: Annotated[str | None, typer.Option(help="package.module:Name, for torch [client.model].")] = None,
    flower_app: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A Flower app; its ClientApp trains [client.flower_app]."),
    ] = None,
    node_config: Annotated[
        str | None,
        typer.Option(metavar="'K=V ...'", help="The app's node config, as in Flower [client.node_config]."),
    ] = None,
    graph_digest: Annotated[
        str | None, typer.Option(help="The only graph to train, for onnx [client.graph_digest].")
    ] = None,
    cpu: Annotated[str | None, typer.Option(metavar="25%", help="CPU limit, of a core [client.cpu].")] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="50kB/s", help="Network limit, both ways [client.bandwidth].")
    ] = None,
    pause_on: Annotated[
        str | None,
        typer.Option(
            metavar="battery:40,...",
            help="Add to hot:80 and undervoltage: battery, metered, owner, hours:22:00-06:00, file:PATH "
            "[client.pause_on].",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A label to select it by [client.labels]; may repeat."),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A run of a server of several [client.runs]; may repeat."),
    ] = None,
    set_: Set = None,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = Format.text,
) -> None:
    """Train for a server on this machine's data until its run is over, at the lowest priority.

    First join the run: `edgeflock client join URL TOKEN`, with the token that the server printed.
    """
    import asyncio

    log_to_stderr(log_level, log_format)
    logging.getLogger("edgeflock").addHandler(LastLine(os.environ))
    flags = client_flags(
        server=server,
        identity=identity,
        name=name,
        data=data,
        backend=backend,
        model=model,
        flower_app=flower_app,
        node_config=node_config,
        graph_digest=graph_digest,
        cpu=cpu,
        bandwidth=bandwidth,
        pause_on=pause_on,
        labels=",".join(label) if label else None,
        runs=",".join(run) if run else None,
    )
    settings = load_settings(config, [*(set_ or []), *flags])
    from edgeflock.api.client import Client

    async def until_stopped() -> None:
        device = Client.configured(settings.client)
        training = asyncio.create_task(device.run())
        with suppress(NotImplementedError):  # on systems without such signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, training.cancel, "terminated")
        try:
            async with supervised():
                progress = await training
        except asyncio.CancelledError as cancelled:
            if cancelled.args != ("terminated",):
                raise
            print("stopped by a signal", file=sys.stderr)
        else:
            updates = f"{progress.updates} update{'s' * (progress.updates != 1)}"
            print(f"{updates} from {progress.samples} samples", file=sys.stderr)
        finally:
            if device.account is not None:
                print(device.account, file=sys.stderr)

    asyncio.run(until_stopped())


@client.command()
def join(
    url: Annotated[str, typer.Argument(help="The server's URL.")],
    token: Annotated[str | None, typer.Argument(help="The token, as the server printed it.")] = None,
    token_file: TokenFile = None,
    name: Annotated[str | None, typer.Option(help="This device; default: host name and machine id.")] = None,
    identity: IdentityFile = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain HTTP beyond this machine: everybody can read it.")
    ] = False,
) -> None:
    """Join a run: make this device's key, and store the credential that the server gives for it.

    Nothing is sent to a server without the TLS key that the token names.
    """
    import asyncio

    from edgeflock.client.identity import default_path, load_identity, run_in, save_identity
    from edgeflock.client.machine import default_name
    from edgeflock.client.transport.credentials import join as joined

    if (token is None) == (token_file is None):
        raise ConfigError("give either TOKEN or --token-file PATH (-: standard input)")
    path = identity or default_path(run_in(url))
    if path.exists():
        raise ConfigError(
            f"{path}: this device has joined {load_identity(path).server}; remove that file to leave that "
            "run, or name another file with --identity PATH"
        )
    text = token_in(token_file) if token_file is not None else token or ""
    joined_as = asyncio.run(joined(url, text, name or default_name(), insecure=insecure))
    save_identity(joined_as, path)
    print(f"{joined_as.name} has joined {joined_as.server}; its identity is in {path}", file=sys.stderr)
    named = f" --run {run_in(url)}" if run_in(url) else ""
    chosen = named if identity is None else f" --identity {path}"
    print(f"Train with: edgeflock client{chosen} --data URI", file=sys.stderr)
