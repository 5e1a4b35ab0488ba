"""The steps of a quickstart: start the processes, watch them, take the model, end them."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from edgeflock.client.identity import save_identity
from edgeflock.client.transport.credentials import join
from edgeflock.quickstart.plan import QuickstartPlan, backend_of, fresh_folder, settings_of
from edgeflock.quickstart.shown import QuickstartResult, accuracy_of, progress_bar, show_result
from edgeflock.results.outcomes import LAST
from edgeflock.server.identity import Register, Role
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.settings.config import Config, parse
from edgeflock.tui.sources import FeedClient

_EXIT_SECONDS = 30.0
"""Seconds for clients to leave after the end of the run."""


async def start(command: str, settings: Sequence[str], *flags: str, log: Path) -> asyncio.subprocess.Process:
    """Start an edgeflock command with `settings` as --set and output to `log`. A server's stdout is piped."""
    # Each has one thread, because processes that all use every core slow each other down.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "edgeflock",
            command,
            *flags,
            *(part for setting in settings for part in ("--set", setting)),
            stdout=asyncio.subprocess.PIPE if command == "server" else stderr,
            stderr=stderr,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
        )


async def url_of(server: asyncio.subprocess.Process, directory: Path) -> str:
    """Return a server's URL as soon as it listens. Raises EdgeflockError if it ends instead."""
    assert server.stdout is not None
    line = await server.stdout.readline()
    if not line:
        await server.wait()
        raise EdgeflockError(f"the server did not start: {tail_of(directory / 'server.log')}")
    return str(json.loads(line)["url"])


def tail_of(log: Path) -> str:
    """Return the last line of a log, which has the reason of a process's end."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("edgeflock: ") if lines else f"see {log}"


async def wait_for_exit(clients: list[asyncio.subprocess.Process]) -> None:
    """Wait a limited time for clients of a finished run to leave, and report how they ended."""
    leaving = [asyncio.create_task(client.wait()) for client in clients]
    _, late = await asyncio.wait(leaving, timeout=_EXIT_SECONDS)
    for one in late:
        one.cancel()


async def end(processes: list[asyncio.subprocess.Process]) -> None:
    """Stop the clients, then the server. Kill processes that do not stop."""
    for process in reversed(processes):
        if process.returncode is None:
            process.terminate()
    for process in processes:
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def run_quickstart(plan: QuickstartPlan, *, as_json: bool) -> None:
    """Carry out `plan` and print its result. Raises ConfigError or EdgeflockError."""
    settings = settings_of(plan)
    directory = fresh_folder(plan.out)
    settings.append(f"run.directory={directory}")
    narration = Console(stderr=True)
    try:
        result = asyncio.run(_run(plan, settings, directory, narration))
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
    if as_json:
        print(json.dumps(asdict(result)))
    else:
        show_result(result)


async def _run(
    plan: QuickstartPlan, settings: list[str], directory: Path, narration: Console
) -> QuickstartResult:
    began = time.monotonic()
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    config = parse(environ=os.environ, overrides=settings)
    processes: list[asyncio.subprocess.Process] = []
    try:
        server = await start("server", settings, "--json", log=directory / "server.log")
        processes.append(server)
        url = await url_of(server, directory)
        client = FeedClient(url, _token(directory, "viewer"))
        separator = "&" if "?" in plan.data else "?"
        for number in range(1, plan.clients + 1):
            place = directory / f"device-{number}.json"
            save_identity(await join(url, _token(directory, "device"), f"device-{number}"), place)
            client_settings = [
                f"client.identity={place}",
                f"client.data={plan.data}{separator}part={number}/{plan.clients}",
                f"client.model={config.model.module}",
                f"client.seed={plan.seed}",
                f"client.backend={backend_of(plan, number)}",
                "client.low_priority=false",  # somebody waits for it
            ]
            log = directory / f"device-{number}.log"
            processes.append(await start("client", client_settings, log=log))
        status = await _watch(client, config, processes, directory, narration)
        seconds = time.monotonic() - began
        evaluations = await client.request("GET", "/v1/evaluations")
        model = directory / "model.safetensors"
        async with client.send("GET", "/v1/model.safetensors") as response:
            octets = await response.read()
        model.write_bytes(octets)
        await wait_for_exit(processes[1:])
    finally:
        await end(processes)
    accuracies = [one["accuracy"] for one in evaluations if one["accuracy"] is not None]
    return QuickstartResult(
        accuracy=accuracy_of(status),
        last_five_accuracy=fmean(accuracies[-LAST:]) if accuracies else None,
        best_accuracy=max(accuracies, default=None),
        updates=status["version"],
        clients=plan.clients,
        ingress_bytes=status["device_ingress"],
        egress_bytes=status["device_egress"],
        dense_bytes=status["dense_bytes"],
        reduction=status["reduction"],
        reduction_both_ways=status["reduction_both_ways"],
        seconds=round(seconds, 1),
        model_path=str(model),
    )


def _token(directory: Path, role: Role) -> str:
    """Return a token for a process of this quickstart."""
    with closing(Register(directory)) as register:
        return register.create(role).text


async def _watch(
    client: FeedClient,
    config: Config,
    processes: list[asyncio.subprocess.Process],
    directory: Path,
    narration: Console,
) -> Any:
    """Show progress until the run is finished. Return its last status."""
    with progress_bar(narration, config.run.updates) as show:
        while True:
            status = await client.request("GET", "/v1/status")
            show(status)
            if status["state"] == "finished":
                if status["evaluation_failed"]:
                    raise EdgeflockError(f"the evaluation failed: {tail_of(directory / 'server.log')}")
                return status
            names = ["server", *(f"device-{number}" for number in range(1, len(processes)))]
            for name, process in zip(names, processes, strict=True):
                # Clients leave by themselves once the run has its updates.
                if process.returncode and status["version"] < config.run.updates:
                    raise EdgeflockError(
                        f"{name} ended with {process.returncode}: {tail_of(directory / f'{name}.log')}"
                    )
            await asyncio.sleep(0.2)
