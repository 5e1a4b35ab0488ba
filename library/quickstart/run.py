"""The steps of a quickstart: start the processes, watch them, take the model, end them."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from edgeflock.client.identity import save_identity
from edgeflock.client.transport.credentials import join
from edgeflock.quickstart.plan import QuickstartPlan, backend_of, fresh_folder, settings_of
from edgeflock.results.outcomes import LAST
from edgeflock.server.identity import Register, Role
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.numbers import percent, size, times
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
    """Wait a limited time for clients of a finished run to leave."""
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


@dataclass(frozen=True, slots=True)
class QuickstartResult:
    """The result. Bytes are counted at the server's sockets, over the devices' connections."""

    accuracy: float | None
    """The last evaluation's accuracy. None for a regression loss, or without held-out data."""
    last_five_accuracy: float | None
    """The mean accuracy of the last five evaluations."""
    best_accuracy: float | None
    """The highest accuracy of all evaluations."""
    updates: int
    clients: int
    ingress_bytes: int
    egress_bytes: int
    dense_bytes: int
    """Bytes of as many updates as float32, in one direction, without framing."""
    reduction: float | None
    """dense_bytes / ingress_bytes."""
    reduction_both_ways: float | None
    """2 dense_bytes / (ingress + egress). A dense update has a dense model as its answer."""
    seconds: float
    model_path: str


@contextmanager
def progress_bar(narration: Console, total: int) -> Iterator[Callable[[Any], None]]:
    """Show a bar of `total` updates. Yields a function that shows a status of /v1/status on it."""
    columns = (  # 80 characters at most
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[speed]} updates/s"),
        TextColumn("traffic {task.fields[traffic]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=narration, transient=False) as progress:
        task = progress.add_task("", total=total, accuracy="-", speed="-", traffic="-")

        def show(status: Any) -> None:
            speed = progress.tasks[0].speed
            progress.update(
                task,
                completed=status["version"],
                accuracy=percent(accuracy_of(status)),
                speed=f"{speed:,.0f}" if speed else "-",
                traffic=size(status["device_ingress"] + status["device_egress"]),  # both ways
            )

        yield show


def show_result(result: QuickstartResult) -> None:
    """Print `result` as a table."""
    table = Table(show_header=False, box=None)
    for name, value in (
        ("accuracy", _accuracy_text(result)),
        ("updates", f"{result.updates:,} from {result.clients} client processes"),
        ("ingress", f"{size(result.ingress_bytes)}, framing included"),
        ("egress", f"{size(result.egress_bytes)}, first models included"),
        ("dense float32", f"{size(result.dense_bytes)} in each direction"),
        ("reduction", f"{times(result.reduction)} up, {times(result.reduction_both_ways)} both ways"),
        ("seconds", f"{result.seconds:.1f}"),
        ("model", result.model_path),
    ):
        table.add_row(name, value)
    Console().print(table)


def _accuracy_text(result: QuickstartResult) -> str:
    if result.accuracy is None:
        return percent(None)
    last_five, best = percent(result.last_five_accuracy), percent(result.best_accuracy)
    return f"{percent(result.accuracy)} at the end, {last_five} mean of the last five, {best} best"


def accuracy_of(status: Any) -> float | None:
    """Return the accuracy of the last evaluation in a status."""
    accuracy: float | None = (status["evaluation"] or {}).get("accuracy")
    return accuracy


def run_quickstart(plan: QuickstartPlan, *, as_json: bool) -> None:
    """Carry out `plan` and print its result. Raises ConfigError or EdgeflockError."""
    settings = settings_of(plan)
    directory = fresh_folder(plan.out)
    settings.append(f"server.directory={directory}")
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
    with progress_bar(narration, config.end.updates) as show:
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
                if process.returncode and status["version"] < config.end.updates:
                    raise EdgeflockError(
                        f"{name} ended with {process.returncode}: {tail_of(directory / f'{name}.log')}"
                    )
            await asyncio.sleep(0.2)
