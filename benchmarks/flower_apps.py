"""The same Flower apps under Flower and in processes that stay: `python -m benchmarks.flower_apps`.

The examples, unmodified: flower-numpy and flower-pytorch, in the form of Flower's quickstarts, two devices.
First a SuperLink and SuperNodes with AsyncAdaComp, then `edgeflock server` and its clients with the same app.
Bytes are counted at the devices' sockets under Flower, and at the server's own. Last what the training of
flower-pytorch takes alone.
"""

import argparse
import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from benchmarks.flower import counting
from benchmarks.flower_deployment import EXAMPLES, Deployment, free_port
from edgeflock.server.journal import Journal


@dataclass(frozen=True)
class App:
    """An example, and how it is run."""

    name: str
    package: str
    first: str
    """An expression for its first arrays by name, of the names in its task module."""
    settings: tuple[str, ...] = ()
    """Of the native server."""

    @property
    def folder(self) -> Path:
        return EXAMPLES / self.name


APPS = (
    App("flower-numpy", "digits_numpy", "{str(number): array for number, array in enumerate(get_model())}"),
    App(
        "flower-pytorch",
        "digits_pytorch",
        "{name: tensor.numpy() for name, tensor in Net().state_dict().items()}",
        ("client_config.lr=0.1",),
    ),
)

OWN = """
import sys, time
sys.path.insert(0, {folder!r})
import torch
from digits_pytorch.task import Net, load_data, train
torch.set_num_threads(1)
net, seconds = Net(), []
for _ in range({rounds}):
    began = time.process_time()
    train(net, load_data(0, 2, 32), 1, 0.1)
    seconds.append(time.process_time() - began)
print(sum(seconds[3:]) / len(seconds[3:]))
"""
"""What a message of flower-pytorch computes, without anything around it."""


@dataclass(frozen=True)
class Measured:
    """A run of an app."""

    runtime: str
    rate: float
    """Updates a second."""
    updates: int
    accuracy: float
    up: float
    """Bytes of an update from the device, all included, and"""
    down: float
    """to it."""
    processor: float = math.nan
    """Seconds that its device computes."""

    def row(self) -> str:
        return (
            f"| {self.runtime} | {self.rate:.3g} | {self.updates} | {self.accuracy:.1%} | {self.up:,.0f} | "
            f"{self.down:,.0f} |"
        )


async def under_flower(app: App, rounds: int) -> Measured:
    """A SuperLink, two SuperNodes and AsyncAdaComp."""
    with tempfile.TemporaryDirectory() as home:
        deployed, checkpoint = Deployment(Path(home)), Path(home) / "checkpoint"
        try:
            async with AsyncExitStack() as proxies:
                await deployed.superlink()
                counters = []
                for part in range(2):
                    port, counter = await proxies.enter_async_context(counting(deployed.port))
                    await deployed.supernode(part, 2, port=port)
                    counters.append(counter)
                config = f'num-server-rounds={rounds} checkpoint="{checkpoint}"'
                extra = " fraction-evaluate=0.0" if app.name == "flower-pytorch" else ""
                run = await deployed.run(app.folder, config + extra)
                await run.until("Final results")
        finally:
            await deployed.close()
        journal = Journal(checkpoint / "journal.sqlite")
        past = journal.evaluations()
        journal.close()
    first = next(e for e in past if e.version)
    last = past[-1]
    accuracy = next(e.accuracy for e in reversed(past) if e.accuracy is not None)
    times = {e.version: e.time for e in reversed(past)}  # when its round was over, not when it was judged
    rate = (last.version - first.version) / (times[last.version] - times[first.version])
    up, down = (sum(getattr(counter, way) for counter in counters) / last.version for way in ("up", "down"))
    return Measured("Flower", rate, last.version, accuracy, up, down)


async def native(app: App, devices: int, seconds: float) -> Measured:
    """`edgeflock server` and devices for so long."""
    with tempfile.TemporaryDirectory() as home:
        deployed, port = Deployment(Path(home)), free_port()
        initial = Path(home) / "initial.npz"
        _begin(app, initial)
        settings = (
            *(f"model.module=arrays:{initial}", f"model.evaluate={app.package}.task:evaluate"),
            *(f"server.directory={home}/run", f"server.port={port}", "server.open=true", *app.settings),
        )
        try:
            asked = (f"--set={setting}" for setting in settings)
            await deployed.spawn("edgeflock", "server", *asked, path=str(app.folder))
            while not await _status(port):  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            clients = [
                await deployed.spawn(
                    *("edgeflock", "client", f"--server=http://127.0.0.1:{port}", f"--name=device-{part}"),
                    *(f"--flower-app={app.folder}", f"--node-config=partition-id={part} num-partitions=2"),
                    f"--set=client.directory={home}/devices",
                )
                for part in range(devices)
            ]
            while (await _status(port))["version"] < 3 * devices:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            before, at, computed = await _status(port), time.monotonic(), _computed(clients)
            await asyncio.sleep(seconds)
            after, took, computed = await _status(port), time.monotonic() - at, _computed(clients) - computed
        finally:
            await deployed.close()
    updates = after["version"] - before["version"]
    up, down = ((after[way] - before[way]) / updates for way in ("ingress", "egress"))
    return Measured(
        f"native, {devices} device{'s' if devices > 1 else ''}",
        *(updates / took, after["version"], after["evaluation"]["accuracy"], up, down, computed / updates),
    )


def _computed(processes: list[asyncio.subprocess.Process]) -> float:
    """Seconds of processor time until now."""
    times = [psutil.Process(process.pid).cpu_times() for process in processes]
    return sum(float(time.user + time.system) for time in times)


def _begin(app: App, initial: Path) -> None:
    """Write the app's first arrays, in a process of its own."""
    program = (
        f"import sys, numpy; sys.path.insert(0, {str(app.folder)!r})\n"
        f"from {app.package}.task import *\n"
        f"numpy.savez({str(initial)!r}, **{app.first})"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def _status(port: int) -> dict[str, Any]:
    """Empty while nobody answers."""
    try:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/v1/status") as answer:
            status: dict[str, Any] = json.loads(await answer.read())
            return status
    except aiohttp.ClientError:
        return {}


def own_training(rounds: int = 20) -> float:
    """Seconds that flower-pytorch's training computes for a message, alone in a process."""
    program = OWN.format(folder=str(APPS[1].folder), rounds=rounds)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


async def compare(app: App, rounds: int, seconds: float) -> None:
    """Both runtimes with two devices."""
    print(f"\n{app.name}\n\n| runtime | updates/s | updates | accuracy | bytes up | bytes down |")
    print("|---|--:|--:|--:|--:|--:|")
    there = await under_flower(app, rounds)
    print(there.row(), flush=True)
    here = await native(app, 2, seconds)
    print(f"{here.row()}\n\n{here.rate / there.rate:.0f} times as many updates", flush=True)


async def alone(seconds: float) -> None:
    """Compare the processor time of an update of flower-pytorch with that of its training alone.

    Processor time does not depend on what else runs.
    """
    one, own = await native(APPS[1], 1, seconds), own_training()
    print(f"{one.row()}\n\n{1e3 * one.processor:.1f} ms an update; its training alone takes {1e3 * own:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=[*(app.name for app in APPS), "alone"])
    parser.add_argument("--rounds", type=int, default=8, help="of two updates, under Flower")
    parser.add_argument("--seconds", type=float, default=15.0, help="for the native server")
    options = parser.parse_args()
    for app in APPS:
        if app.name in options.what:
            asyncio.run(compare(app, options.rounds, options.seconds))
    if "alone" in options.what:
        asyncio.run(alone(options.seconds))


if __name__ == "__main__":
    main()
