"""`edgeflock server`: host a model."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.devices.commands.options import (
    PROJECT,
    ConfigFile,
    Format,
    Json,
    Level,
    LogFormat,
    LogLevel,
    Set,
    log_to_stderr,
    needing,
    settings_of,
)
from edgeflock.devices.commands.supervisor import is_supervised, supervised
from edgeflock.shared.errors import EdgeflockError

if TYPE_CHECKING:
    from edgeflock.devices.library.server import Server
    from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)


def server(
    config: ConfigFile = None,
    set_: Set = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Speak plain HTTP also beyond this machine [run.insecure].")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another server hosts the run; with journal.url only."),
    ] = False,
    json: Json = False,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = Format.text,
) -> None:
    """Host a model and take updates for it, until interrupted."""
    import asyncio

    log_to_stderr(log_level, log_format)

    results, sys.stdout = sys.stdout, sys.stderr  # a user's module may print; stdout is for results

    def ready(server: "Server") -> None:
        if json:
            import json as encoder

            line = encoder.dumps({"url": server.url, "run": server.run, "version": server.version})
            print(line, file=results, flush=True)
            return
        print(f"Run {server.run} at version {server.version} on {server.url}", file=sys.stderr)
        if is_supervised(os.environ) and not settings.run.open:  # its log is others' to read
            print(
                f"To let devices join: edgeflock token create {settings.run.directory}",
                file=sys.stderr,
            )
        elif server.token:
            print(
                f"On each device, within a day: edgeflock client join {server.url} {server.token}",
                file=sys.stderr,
            )
        else:
            print(f"On each device: edgeflock client --server {server.url} --data URI", file=sys.stderr)
        print(
            f"To watch and act: edgeflock top {server.url} --token-file {server.admin_token}, or open "
            f"{server.url} in a browser",
            file=sys.stderr,
        )

    async def led(server: "Server", stop: asyncio.Event) -> None:
        # What is loaded by now lives as long as the server: the collector need not walk it again.
        gc.freeze()
        ready(server)
        await server.serve(stop)

    def doing(server: "Server") -> str:
        return f"run {server.run} at version {server.version} on {server.url}"

    async def until_stopped(settings: "Config") -> None:
        stop = asyncio.Event()
        async with Server.configured(settings) as server:
            _on_signals(stop.set)
            async with supervised(lambda: doing(server)):
                await led(server, stop)

    async def by_turns(settings: "Config") -> None:
        """Stand by, lead, and stand by again once another server leads."""
        stop, waiting = asyncio.Event(), Standby()
        leading: list[Server] = []

        def told() -> None:
            stop.set()
            waiting.leave()

        _on_signals(told)
        async with (
            supervised(lambda: doing(leading[0]) if leading else f"stands by: {waiting.why}"),
            AsyncExitStack() as opened,
        ):
            if not settings.scale.ray:  # a cluster has the memory once: for whoever leads
                waiting.place = await opened.enter_async_context(in_a_thread(placed(settings.scale)))
            while not stop.is_set():
                try:
                    async with Server.configured(settings, waiting) as server:
                        leading.append(server)
                        try:
                            await led(server, stop)
                        finally:
                            leading.clear()
                except StoodDown:
                    return
                except EdgeflockError as error:
                    if not any(
                        isinstance(one, JournalLost | Unreachable) for one in (error, error.__cause__)
                    ):
                        raise
                    log.warning("%s; standing by", error)

    with needing("server", "the server needs"):
        from edgeflock.devices.library.opening import in_a_thread
        from edgeflock.devices.library.server import Server
        from edgeflock.server.choices import CHOICES
        from edgeflock.server.ledger import JournalLost, Unreachable
        from edgeflock.server.shards import placed
        from edgeflock.server.standby import Standby, StoodDown

        asked = [*(set_ or []), *(["run.insecure=true"] if insecure else [])]
        if config is None and PROJECT.is_file():
            log.warning("%s is here, and was not named: none of its settings count", PROJECT)
        settings = settings_of(config, asked, tables=CHOICES)
        if not settings.model.arrays:
            import torch

            torch.set_num_threads(1)  # the cores are the writer's, and the evaluation's is one
        asyncio.run(by_turns(settings) if standby else until_stopped(settings))


def _on_signals(told: Callable[[], None]) -> None:
    """Call `told` where a signal asks the process to end."""
    import asyncio

    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, told)
