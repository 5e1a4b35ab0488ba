"""Live streams, end to end: is what comes next predicted by a model that devices train on what came in?

    python -m benchmarks.live [--data elec.npz | occupancy.npz] [--seconds 240] [--out docs/results]

A Mosquitto broker, a server, three client processes with a topic each, and a publisher: real processes,
real sockets. The publisher replays a recorded stream (replay.py) over the topics, which get one, two and
four sevenths of it at rates that differ as much. Before each turn it fetches the server's model and scores
it on all of the turn, beside "no change": once more the label before, of the same device's stream.

Devices add features of the recent past: where a sample stands among the last 16, and the last labels. A
longer window would be cheating with elec: its label says whether the price is above its mean of 24 hours,
and a window of 48 half-hours finds that rule (98%), not the market.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import aiomqtt

from benchmarks.live_report import DeviceReport, Report, Turn, draw, tables
from benchmarks.plain import PLAIN
from benchmarks.replay import Block, Judge, Recording, publish, turns
from edgeflock.papers.machine import machine
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.tui.sources import FeedClient

RECORDINGS = (
    Recording("elec", (("x", "y"),), units=(1,) * 6, block=48, window=16, lags=4),  # a day of half-hours
    Recording(
        "occupancy",
        (("x_test1", "y_test1"), ("x_train", "y_train"), ("x_test2", "y_test2")),
        units=(
            25,
            30,
            500,
            1000,
            0.005,
        ),  # degrees, % of humidity, lux, ppm of CO2, kg of water in a kg of air
        block=60,  # an hour of minutes
        window=16,
        lags=6,
    ),
)

SHARES = (1, 2, 4)
"""How the devices share the stream: the rates' ratio."""

MODULE = "edgeflock.client.zoo:TabularMLP"

SETTINGS = (
    "server.port=0",
    "server.open=true",
    f"model.module={MODULE}",
    "model.data=",
    "coordination.base_batch=64",
    "coordination.learning_rate=0.2",
    *PLAIN,
    "compression.select=1",
)

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

ACCOUNT = re.compile(r"samples came: .* ([\d,]+) dropped, ([\d,]+) quarantined, .* ([\d,]+) left")
"""In what a client prints at the end."""


async def run(
    recording: Recording,
    data: Dataset,
    seconds: float,
    seed: int,
    directory: Path,
    rounds: Sequence[Sequence[Block]] = (),
    settings: Sequence[str] = SETTINGS,
) -> Report:
    """Replay `data` in so many seconds, or the blocks of `rounds` for each device.

    Logs and journal stay in `directory`. Raises EdgeflockError.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    # With a handler here, clients heed SIGINT even if a shell started this in the background.
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    rounds = rounds or list(turns(recording, data, SHARES))
    names = [f"device-{number}" for number in range(1, len(rounds[0]) + 1)]
    logs = [directory / f"{name}.log" for name in names]
    topics = [f"edgeflock/{name}" for name in names]
    measured: list[Turn] = []
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(broker(directory))
        url = await stack.enter_async_context(server(directory, seed, settings))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        judge, client = Judge(http, url, MODULE), FeedClient(url, "")
        async with AsyncExitStack() as clients:
            for name, topic, log in zip(names, topics, logs, strict=True):
                uri = f"mqtt://127.0.0.1:{port}/{topic}?window={recording.window}&lags={recording.lags}&classes=2"
                options = ("--server", url, "--name", name, "--data", uri, "--backend", "torch")
                await clients.enter_async_context(edgeflock("client", *options, log=log, stop=signal.SIGINT))
            await ready(client, logs)
            publisher = await clients.enter_async_context(aiomqtt.Client("127.0.0.1", port))
            begin, each = loop.time(), seconds / len(rounds)
            for number, blocks in enumerate(rounds, 1):
                await judge.refresh()
                scores = [judge.score(block) for block in blocks]
                status = await status_of(client, names)
                updates, trained = ([device[key] for device in status] for key in ("updates", "samples"))
                measured.append(Turn(loop.time() - begin, judge.version, scores, updates, trained))
                await publish(publisher, topics, blocks, begin + number * each, each)
            status = await settled(client, names)
    devices = []
    for number, (device, log) in enumerate(zip(status, logs, strict=True)):
        found = ACCOUNT.search(log.read_text(errors="replace"))
        if found is None:
            raise EdgeflockError(f"{device['name']} did not say how its stream ended: {_tail(log)}")
        dropped, quarantined, waiting = (int(number.replace(",", "")) for number in found.groups())
        scores = [turn.scores[number] for turn in measured]
        devices.append(
            DeviceReport(
                name=device["name"],
                rate=round(sum(score.samples for score in scores) / seconds, 1),
                published=sum(score.samples for score in scores),
                trained=device["samples"],
                dropped=dropped,
                waiting=waiting,
                quarantined=quarantined,
                updates=device["updates"],
            )
        )
    return Report.of(recording.name, data, seconds, measured, devices)


@asynccontextmanager
async def broker(directory: Path) -> AsyncIterator[int]:
    """A Mosquitto on 127.0.0.1; its port."""
    port = free_port()
    async with mosquitto(directory, port, "allow_anonymous true"):
        yield port


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@asynccontextmanager
async def mosquitto(directory: Path, port: int, *settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Mosquitto that listens; `settings` are further lines of its configuration."""
    if MOSQUITTO is None:
        raise ConfigError("mosquitto is not installed (apt-get install mosquitto)")
    path = directory / "mosquitto.conf"
    path.write_text("\n".join((f"listener {port} 127.0.0.1", "max_queued_messages 0", *settings, "")))
    log = directory / "mosquitto.log"
    async with process(MOSQUITTO, "-c", str(path), log=log) as started:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if started.returncode is not None:
                    raise EdgeflockError(f"mosquitto did not start: {_tail(log)}") from None
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            break
        yield started


@asynccontextmanager
async def server(directory: Path, seed: int, settings: Sequence[str] = SETTINGS) -> AsyncIterator[str]:
    """An Edgeflock server; its URL."""
    options = ["--json"]
    for setting in (*settings, f"model.seed={seed}", f"server.directory={directory / 'run'}"):
        options += ["--set", setting]
    log = directory / "server.log"
    async with edgeflock("server", *options, log=log) as started:
        assert started.stdout is not None
        line = await started.stdout.readline()
        if not line:
            raise EdgeflockError(f"the server did not start: {_tail(log)}")
        yield json.loads(line)["url"]


@asynccontextmanager
async def edgeflock(
    command: str, *arguments: str, log: Path, stop: signal.Signals = signal.SIGTERM
) -> AsyncIterator[asyncio.subprocess.Process]:
    whole = (sys.executable, "-m", "edgeflock", command, *arguments)
    async with process(*whole, log=log, stop=stop) as started:
        yield started


@asynccontextmanager
async def process(
    *command: str, log: Path, stop: signal.Signals = signal.SIGTERM
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process, until the end of the context; its stderr goes to `log`."""
    with log.open("ab") as stderr:
        started = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(stop)
        try:
            await asyncio.wait_for(started.wait(), 60)
        except TimeoutError:
            started.kill()
            await started.wait()


_SHORTEST_MODEL = 6
"""Bytes, framed: of version 0, which a device makes by itself, nothing has changed."""


async def ready(client: FeedClient, logs: Sequence[Path]) -> None:
    """Return once every client hears its topic and holds a model, for which it has loaded torch."""
    while True:
        texts = [log.read_text(errors="replace") for log in logs]
        for log, text in zip(logs, texts, strict=True):
            if "edgeflock: " in text:  # it has given up
                raise EdgeflockError(f"{log.stem} ended: {_tail(log)}")
        run = await client.request("GET", "/v1/status")
        models = run["records"]["Model"]["egress"] >= _SHORTEST_MODEL * len(logs)
        if models and all("listening to mqtt" in text for text in texts):
            return
        await asyncio.sleep(0.1)


async def status_of(client: FeedClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """What the server knows of the devices, in the order of `names`."""
    devices = (await client.request("GET", "/v1/status"))["devices"]
    known = {device["name"]: device for device in devices}
    return [known[name] for name in names]


async def settled(client: FeedClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """The devices once they have trained on what was published last."""
    before: list[int] = []
    while True:
        await asyncio.sleep(2)
        status = await status_of(client, names)
        trained = [device["samples"] for device in status]
        if trained == before:
            return status
        before = trained


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("edgeflock: ") if lines else f"see {log}"


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.live", description=__doc__.split("\n")[0])
    known = {f"{recording.name}.npz": recording for recording in RECORDINGS}
    folder = Path(os.environ.get("EDGEFLOCK_DATA", "."))
    parser.add_argument("--data", type=Path, default=folder / "elec.npz", help=f"one of {', '.join(known)}")
    parser.add_argument("--seconds", type=float, default=240, help="for the whole stream")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep results as JSON, PNG and SVG")
    arguments = parser.parse_args()
    path = arguments.data if arguments.data.is_file() else folder / arguments.data
    if path.name not in known:
        parser.error(f"--data {path.name}: known are {', '.join(known)}")
    recording = known[path.name]
    try:
        with tempfile.TemporaryDirectory() as directory:
            data = recording.read(path)
            report = asyncio.run(run(recording, data, arguments.seconds, arguments.seed, Path(directory)))
    except EdgeflockError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    except asyncio.CancelledError:
        parser.exit(130, f"{parser.prog}: interrupted\n")
    print(tables(report))
    if arguments.out:
        name, date = f"live-{recording.name}", datetime.now(UTC).date().isoformat()
        arguments.out.mkdir(parents=True, exist_ok=True)
        record = {
            "command": f"python -m benchmarks.live --data {path.name} --seconds {arguments.seconds:g}",
            "seed": arguments.seed,
            "date": date,
            "machine": machine(),
            "settings": SETTINGS,
            "window": recording.window,
            "lags": recording.lags,
            **report.as_json(),
        }
        (arguments.out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        draw(report, arguments.out / name, f"{date}; everything on one machine: {machine()}")


if __name__ == "__main__":
    main()
