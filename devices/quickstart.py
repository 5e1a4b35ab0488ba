"""A whole fleet on one machine: a server and client processes on loopback, over real sockets."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from edgeflock.devices.status import fetch, size
from edgeflock.shared import datasets
from edgeflock.shared.config import Config, parse
from edgeflock.shared.errors import ConfigError, EdgeflockError

_DEFAULTS = {
    (1, 8, 8): ("edgeflock.client.zoo:DigitsCNN", 8000),
    (1, 28, 28): ("edgeflock.client.zoo:PaperCNN", 12000),
}
"""Input shape -> model and number of updates that suit it."""

_BACKENDS = ("auto", "onnx", "torch", "mixed")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to train, how, and by how many processes."""

    data: str
    model: str
    rule: str | None
    select: float | None
    values: str | None
    clients: int
    backend: str
    """client.backend, or mixed: every other client is onnx, the rest torch."""
    updates: int
    seed: int
    out: Path
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How it went. Bytes are counted at the server's sockets, over the devices' connections."""

    accuracy: float | None
    """None for a regression loss, or without held-out data."""
    updates: int
    clients: int
    ingress_bytes: int
    dense_bytes: int
    reduction: float | None
    seconds: float
    model_path: str


def run_quickstart(plan: Plan, *, as_json: bool) -> None:
    """Carry out `plan` and print its result. Raises ConfigError or EdgeflockError."""
    settings = _settings(plan)
    directory = _fresh(plan.out)
    settings.append(f"run.directory={directory}")
    narration = Console(stderr=True)
    try:
        result = asyncio.run(_run(plan, settings, directory, narration))
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
    if as_json:
        print(json.dumps(asdict(result)))
    else:
        _show(result)


def _settings(plan: Plan) -> list[str]:
    """Overrides for the server, checked here so that a mistake shows before anything starts."""
    if plan.backend not in _BACKENDS:
        raise ConfigError(
            f"--backend {plan.backend!r}: must be {', '.join(_BACKENDS[:-1])} or {_BACKENDS[-1]}"
        )
    sample = datasets.load(plan.data, "train")
    if plan.clients > len(sample):
        raise ConfigError(f"--clients {plan.clients}: there are only {len(sample)} samples to share out")
    shape = sample.x.shape[1:]
    model, updates = _DEFAULTS.get(shape, ("", 8000))
    if not (plan.model or model):
        raise ConfigError(f"no ready-made model takes inputs of shape {shape}; name yours with --model")
    given = {
        "coordination.rule": plan.rule,
        "compression.select": plan.select,
        "compression.values": plan.values,
    }
    overrides = [
        "run.port=0",
        f"run.updates={plan.updates or updates}",
        f"run.seed={plan.seed}",
        "run.open=false",
        f"model.module={plan.model or model}",
        f"model.data={plan.data}",
        *(f"{key}={value}" for key, value in given.items() if value is not None),
        *plan.overrides,
    ]
    try:
        from edgeflock.server.choices import CHOICES
    except ImportError as error:
        raise ConfigError(f"a quickstart needs {error.name}: pip install 'edgeflock[server]'") from error
    parse(environ=os.environ, overrides=overrides, tables=CHOICES)
    return overrides


async def _run(plan: Plan, settings: list[str], directory: Path, narration: Console) -> Result:
    began = time.monotonic()
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    config = parse(environ=os.environ, overrides=settings)
    processes: list[asyncio.subprocess.Process] = []
    try:
        server = await _start("server", "--json", *_set(settings), log=directory / "server.log")
        processes.append(server)
        url = await _url(server, directory)
        token = config.run.token or (directory / "token").read_text().strip()
        separator = "&" if "?" in plan.data else "?"
        for number in range(1, plan.clients + 1):
            own = [
                f"client.server={url}",
                f"client.name=device-{number}",
                f"client.data={plan.data}{separator}part={number}/{plan.clients}",
                f"client.model={config.model.module}",
                f"client.seed={plan.seed}",
                f"client.backend={_backend(plan, number)}",
            ]
            log = directory / f"device-{number}.log"
            processes.append(await _start("client", *_set(own), log=log, token=token))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
            status = await _watch(http, url, token, config, processes, directory, narration)
            seconds = time.monotonic() - began
            model = directory / "model.safetensors"
            model.write_bytes(await fetch(http, url, "/v1/model.safetensors", token))
    finally:
        await _end(processes)
    return Result(
        accuracy=_accuracy(status),
        updates=status["version"],
        clients=plan.clients,
        ingress_bytes=status["device_ingress"],
        dense_bytes=status["dense_bytes"],
        reduction=status["reduction"],
        seconds=round(seconds, 1),
        model_path=str(model),
    )


def _backend(plan: Plan, number: int) -> str:
    """What client `number`, counted from 1, trains with."""
    if plan.backend != "mixed":
        return plan.backend
    return "torch" if number % 2 else "onnx"


async def _watch(
    http: aiohttp.ClientSession,
    url: str,
    token: str,
    config: Config,
    processes: list[asyncio.subprocess.Process],
    directory: Path,
    narration: Console,
) -> Any:
    """Show progress until the run is finished; its last status."""
    with _progress(narration, config.run.updates) as show:
        while True:
            status = json.loads(await fetch(http, url, "/v1/status", token))
            show(status)
            if status["state"] == "finished":
                if status["evaluation_failed"]:
                    raise EdgeflockError(f"the evaluation failed: {_tail(directory / 'server.log')}")
                return status
            names = ["server", *(f"device-{number}" for number in range(1, len(processes)))]
            for name, process in zip(names, processes, strict=True):
                # Clients leave by themselves once the run has its updates.
                if process.returncode and status["version"] < config.run.updates:
                    raise EdgeflockError(
                        f"{name} ended with {process.returncode}: {_tail(directory / f'{name}.log')}"
                    )
            await asyncio.sleep(0.2)


@contextmanager
def _progress(narration: Console, total: int) -> Iterator[Any]:
    columns = (  # 80 characters at most
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[speed]} updates/s"),
        TextColumn("ingress {task.fields[ingress]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=narration, transient=False) as progress:
        task = progress.add_task("", total=total, accuracy="-", speed="-", ingress="-")

        def show(status: Any) -> None:
            speed = progress.tasks[0].speed
            accuracy = _accuracy(status)
            progress.update(
                task,
                completed=status["version"],
                accuracy="-" if accuracy is None else f"{accuracy:.2%}",
                speed=f"{speed:,.0f}" if speed else "-",
                ingress=size(status["device_ingress"]),
            )

        yield show


def _show(result: Result) -> None:
    table = Table(show_header=False, box=None)
    for name, value in (
        ("accuracy", "-" if result.accuracy is None else f"{result.accuracy:.2%}"),
        ("updates", f"{result.updates:,} from {result.clients} client processes"),
        ("ingress", f"{size(result.ingress_bytes)}, framing included"),
        ("dense float32", size(result.dense_bytes)),
        ("reduction", "-" if result.reduction is None else f"{result.reduction:,.0f}x"),
        ("seconds", f"{result.seconds:.1f}"),
        ("model", result.model_path),
    ):
        table.add_row(name, value)
    Console().print(table)


def _accuracy(status: Any) -> float | None:
    accuracy: float | None = (status["evaluation"] or {}).get("accuracy")
    return accuracy


def _fresh(out: Path) -> Path:
    """A new folder out/run-N."""
    number = 1
    while True:
        try:
            (out / f"run-{number}").mkdir(parents=True)
            return out / f"run-{number}"
        except FileExistsError:
            number += 1
        except OSError as error:
            raise ConfigError(f"--out {out}: {error.strerror}; choose another folder") from error


def _set(settings: list[str]) -> Iterator[str]:
    for setting in settings:
        yield from ("--set", setting)


async def _start(command: str, *arguments: str, log: Path, token: str = "") -> asyncio.subprocess.Process:
    # One thread each: processes that all use every core only get in each other's way.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if token:
        environment["EDGEFLOCK_CLIENT__TOKEN"] = token
    with log.open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "edgeflock.devices",
            command,
            *arguments,
            stdout=asyncio.subprocess.PIPE if command == "server" else stderr,
            stderr=stderr,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
        )


async def _url(server: asyncio.subprocess.Process, directory: Path) -> str:
    assert server.stdout is not None
    line = await server.stdout.readline()
    if not line:
        await server.wait()
        raise EdgeflockError(f"the server did not start: {_tail(directory / 'server.log')}")
    return str(json.loads(line)["url"])


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("edgeflock: ") if lines else f"see {log}"


async def _end(processes: list[asyncio.subprocess.Process]) -> None:
    """Stop the clients, then the server; kill what does not stop."""
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
