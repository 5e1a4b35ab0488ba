"""`edgeflock server`: host a model."""

import gc
import logging
import os
import sys
import tomllib
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.cli.options import (
    PROJECT,
    ConfigFile,
    Format,
    Json,
    Level,
    LogFormat,
    LogLevel,
    Set,
    load_settings,
    log_to_stderr,
    on_end_signals,
    print_json,
    require,
)
from edgeflock.cli.supervisor import is_supervised, supervised
from edgeflock.shared.errors import ConfigError, EdgeflockError

if TYPE_CHECKING:
    from edgeflock.api.server import Server
    from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

_PAUSE = 0.5
"""Seconds between the loss of a journal and the next attempt to open it."""


def server(
    config: ConfigFile = None,
    set_: Set = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow plain HTTP beyond this machine [server.insecure].")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another server hosts the run; with journal.url only."),
    ] = False,
    check: Annotated[bool, typer.Option("--check", hidden=True, help="Read the settings, and end.")] = False,
    json: Json = False,
    log_level: LogLevel = Level.info,
    log_format: LogFormat = Format.text,
) -> None:
    """Host a model and take updates for it, until interrupted. A folder of settings files is several runs."""
    import asyncio

    log_to_stderr(log_level, log_format)
    if config is not None and config.is_dir():
        if standby:
            raise ConfigError("--standby is for one run; a server of several runs has none")
        if sys.platform == "win32":
            raise ConfigError(
                f"{config}: a server of several runs needs Unix sockets; start one for each run"
            )
        overrides = [*(set_ or []), *(["server.insecure=true"] if insecure else [])]
        with require("server", "the server needs"):
            _host_folder(config, overrides, ("--log-level", log_level, "--log-format", log_format), json)
        return

    results, sys.stdout = sys.stdout, sys.stderr  # a user's module may print; stdout is for --json

    def announce(server: "Server") -> None:
        if json:
            print_json({"url": server.url, "run": server.run, "version": server.version}, results)
            return
        print(f"Run {server.run} at version {server.version} on {server.url}")
        log_is_private = not is_supervised(os.environ) if proxy is None else proxy.log_is_private
        if not log_is_private and not settings.server.open:
            print(f"To let devices join: edgeflock token create {settings.server.directory}")
        elif server.token:
            # On a line of its own: without TLS a token ends with a dot, which is not that of a sentence.
            print(f"On each device, within a day:\n    edgeflock client join {server.url} {server.token}")
        else:
            print(f"On each device: edgeflock client --server {server.url} --data URI")
        print(
            f"To watch and act: edgeflock top {server.url} --token-file {server.admin_token}, or open "
            f"{server.url} in a browser"
        )

    async def until_stopped(settings: "Config") -> None:
        """Lead, or wait to lead. Wait again if another server leads, or if the journal is lost."""
        stop, waiting = asyncio.Event(), Standby(waits=standby)
        leading: list[Server] = []
        led = ""

        def on_signal() -> None:
            stop.set()
            waiting.stop()

        def describe() -> str:
            if not leading:
                return f"stands by: {waiting.reason}"
            return f"run {leading[0].run} at version {leading[0].version} on {leading[0].url}"

        async with AsyncExitStack() as opened:
            waiting.sockets = [] if proxy is None else proxy.listen()
            opened.callback(waiting.close)
            if not settings.scale.ray:  # a cluster has the memory once: for whoever leads
                waiting.place = await opened.enter_async_context(enter_in_thread(open_place(settings.scale)))

            async def begin() -> None:
                on_end_signals(on_signal)
                await opened.enter_async_context(supervised(describe))

            if standby:  # who stands by is ready
                await begin()
            has_begun = standby
            while not stop.is_set():
                try:
                    async with Server.configured(settings, waiting, proxy) as server:
                        leading.append(server)
                        if not has_begun:
                            await begin()
                        has_begun = True
                        try:
                            gc.freeze()  # what is loaded by now lives as long as the server
                            announce(server)
                            await server.serve(stop)
                        finally:
                            leading.clear()
                    led = f": run {server.run} at version {server.version}"
                except StandbyStopped:
                    break
                except EdgeflockError as error:
                    if stop.is_set() or not waiting.waits or not is_transient(error):
                        raise
                    log.warning("%s; this server stands by until it can go on", error)
                    gc.unfreeze()
                    gc.collect()  # the run that it had is as large as the next one
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_PAUSE):
                            await stop.wait()
        if proxy is None:  # else an operator may have paused or archived it
            goes_on = led and "; the same command goes on with it"
            print(f"stopped by a signal{led}{goes_on}", file=sys.stderr)

    with require("server", "the server needs"):
        from edgeflock.api.opening import enter_in_thread
        from edgeflock.api.server import Server
        from edgeflock.server.connections.reverse_proxy import ReverseProxy
        from edgeflock.server.database import is_transient
        from edgeflock.server.hosting.choices import CHOICES
        from edgeflock.server.hosting.standby import Standby, StandbyStopped
        from edgeflock.server.ledger import is_shared
        from edgeflock.server.shards import open_place

        proxy = ReverseProxy.take_from(os.environ)
        if proxy is not None:
            proxy.end_with_it()
        overrides = [*(set_ or []), *(["server.insecure=true"] if insecure else [])]
        if config is None and PROJECT.is_file():
            log.warning("%s is here, and was not named: none of its settings count", PROJECT)
        settings = load_settings(config, overrides, tables=CHOICES)
        if standby and not is_shared(settings.journal.url):
            raise ConfigError(
                f"--standby: journal.url = {settings.journal.url!r} is for one server alone; servers that "
                "stand by for each other share a database, postgresql://..."
            )
        if check:
            return
        if not settings.model.arrays:
            import torch

            torch.set_num_threads(1)  # the cores are the writer's, and the evaluation's is one
        asyncio.run(until_stopped(settings))


def _host_folder(folder: Path, overrides: list[str], arguments: tuple[str, ...], json: bool) -> None:
    """Host every run of a folder, until interrupted. `arguments` are options of each run's command."""
    import asyncio

    from edgeflock.server.identity import ADMIN_TOKEN
    from edgeflock.server.supervision.run_files import OWN
    from edgeflock.server.supervision.supervisor import Supervisor

    file = folder / f"{OWN}.toml"
    settings = load_settings(file if file.is_file() else None, overrides)
    sections = {one.partition(".")[0] for one in overrides}
    if file.is_file():
        sections |= tomllib.loads(file.read_text("utf-8")).keys()
    if of_runs := sections - {"server", "limits"}:
        raise ConfigError(
            f"{file.name} and --set have only [server] and [limits] here, for all runs: write "
            f"[{min(of_runs)}] into the file of each run"
        )

    def show(name: str, line: str) -> None:
        print(f'{{"run": "{name}", {line[1:]}' if line.startswith("{") else f"{name} | {line}", flush=True)

    supervisor = Supervisor(
        folder, settings, arguments=arguments, log_is_private=not is_supervised(os.environ), show=show
    )

    def describe() -> str:
        states = Counter(run.state for run in supervisor.all_runs())
        return ", ".join(f"{number} {state}" for state, number in sorted(states.items())) or "no runs"

    async def until_stopped() -> None:
        stop = asyncio.Event()
        on_end_signals(stop.set)
        async with supervisor.serving(), supervised(describe):
            if json:
                print_json({"url": supervisor.url, "runs": [run.file.name for run in supervisor.all_runs()]})
            else:
                print(f"Runs in {folder} on {supervisor.url}: {describe()}", flush=True)
                token = folder / ADMIN_TOKEN
                print(f"To watch and act: edgeflock status {supervisor.url} --token-file {token}", flush=True)
            await stop.wait()
        print("stopped by a signal; the same command goes on with these runs", file=sys.stderr)

    asyncio.run(until_stopped())
