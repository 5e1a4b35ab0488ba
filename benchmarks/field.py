"""What the field does to streams: what becomes of every sample, and of what the model learns.

    python -m benchmarks.field [--minutes 15] [--out FILE]

A publisher sends 1 to 500 samples a second in steps, bursts and silences, over Mosquitto with TLS and a
password, to three client processes that buffer on disk. Of its samples 1% are malformed and 0.1% reach 1e30.
The broker is killed twice, and two clients are (SIGKILL); each comes back after some seconds. Beside it the
good samples go at the same time over another broker to three clients that nothing happens to.
"""

import argparse
import asyncio
import getpass
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiomqtt
import numpy as np

from benchmarks.live import RECORDINGS, edgeflock, free_port, mosquitto, ready, server, settled, status_of
from edgeflock.papers.machine import machine
from edgeflock.server.identity import own_certificate
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.data.rates import Steps
from edgeflock.shared.errors import EdgeflockError
from edgeflock.tui.sources import FeedClient

NAMES = ("pi-1", "pi-2", "pi-3")

RATES = (20, 1, 100, 500, 20, -300, 0, 200, 1, 500, 50, -300, 0, 100, 20)
"""Samples a second in equal parts of the run, all devices together; below 0: so many, on and off by
seconds."""

MALFORMED, OUTLIERS = 100, 1000
"""One sample in so many."""

BROKER_KILLS, CLIENT_KILLS = (0.25, 0.62), ((0.42, 0), (0.8, 1))
"""At these parts of the run; of clients with whom it hits."""

AWAY = 2.0
"""Seconds from a kill to the next start."""

RECOVERY = 5.0
"""Seconds that a device takes to catch up."""

IN_FLIGHT = 10
"""Messages that the publisher sends before it waits for the broker to have them."""


class Side:
    """A broker, a server and three clients, and what was sent to them."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.directory = directory / name
        self.directory.mkdir()
        self.port = free_port()
        own = own_certificate(self.directory, "127.0.0.1")
        self._password = self.directory / "password"
        self._password.write_text("sesame\n")
        known = self.directory / "passwords"
        subprocess.run(["mosquitto_passwd", "-b", "-c", known, "pi", "sesame"], check=True)
        for path in (known, own.key, self.directory):
            path.chmod(0o700)
        self._trusted = own.certificate
        self._broker_settings = (
            f"user {getpass.getuser()}",
            f"certfile {own.certificate}",
            f"keyfile {own.key}",
            "allow_anonymous false",
            f"password_file {known}",
            "persistence true",
            f"persistence_location {self.directory}/",
            "autosave_interval 1",
            "autosave_on_changes true",
        )
        self.url = ""
        self.waiting: deque[tuple[int, bytes]] = deque()
        """(device, message) that the broker does not have yet."""
        self.sent: list[list[float]] = [[] for _ in NAMES]
        """When each good sample was."""
        self.broken: Counter[str] = Counter()
        self.reported: list[dict[str, Any]] = [{} for _ in NAMES]
        """What each client told last."""
        self.gone: list[Counter[str]] = [Counter() for _ in NAMES]
        """What those that were killed had told."""
        self.accuracies: list[float] = []
        self.broker = Killable(lambda: mosquitto(self.directory, self.port, *self._broker_settings))
        self.clients = [Killable(partial(self._client, device)) for device in range(len(NAMES))]
        self.outages: list[tuple[float, float, int | None]] = []
        """(from, until it was started again, client or all)."""

    def log(self, device: int) -> Path:
        return self.directory / f"{NAMES[device]}.log"

    def _client(self, device: int) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        name, recording = NAMES[device], RECORDINGS[0]
        options = f"window={recording.window}&lags={recording.lags}&classes=2"
        login = f"session={name}&ca={self._trusted}&password_file={self._password}"
        uri = f"mqtts://pi@127.0.0.1:{self.port}/field/{name}?{options}&{login}"
        arguments = ["--server", self.url, "--name", name, "--data", uri, "--backend", "torch"]
        for setting in (
            f"buffer={self.directory / name}.sqlite",
            f"directory={self.directory}",
            "batch_min=1",
        ):
            arguments += ["--set", f"client.{setting}"]
        return edgeflock("client", *arguments, log=self.log(device))

    async def publish(self) -> None:
        """What waits, in its order, for ever. What the broker did not confirm goes again."""
        context = ssl.create_default_context(cafile=self._trusted)
        while True:
            try:
                async with aiomqtt.Client(
                    "127.0.0.1", self.port, username="pi", password="sesame", tls_context=context
                ) as client:
                    while True:
                        together = [self.waiting[i] for i in range(min(IN_FLIGHT, len(self.waiting)))]
                        await asyncio.gather(
                            *(client.publish(f"field/{NAMES[to]}", what, qos=1) for to, what in together)
                        )
                        for _ in together:
                            self.waiting.popleft()
                        await asyncio.sleep(0 if self.waiting else 0.02)
            except aiomqtt.MqttError:
                await asyncio.sleep(0.2)

    async def look(self) -> None:
        """What the clients tell by now."""
        for device, status in enumerate(await status_of(FeedClient(self.url, ""), NAMES)):
            reported = status["telemetry"]
            if SampleAccount.from_facts(reported) is not None:
                self.reported[device] = reported
            if (accuracy := reported.get("stream_accuracy")) is not None:
                self.accuracies.append(accuracy)

    async def kill_client(self, device: int) -> None:
        began = time.time()
        await self.clients[device].kill()
        account = SampleAccount.from_facts(self.reported[device])
        if account is not None:
            self.gone[device].update(account.facts())
        self.reported[device] = {}
        await asyncio.sleep(AWAY)
        await self.clients[device].start()
        self.outages.append((began, time.time(), device))

    async def kill_broker(self) -> None:
        began = time.time()
        await self.broker.kill()
        await asyncio.sleep(AWAY)
        await self.broker.start()
        self.outages.append((began, time.time(), None))


class Killable:
    """A process that can be killed and started again."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[asyncio.subprocess.Process]]) -> None:
        self._make = make
        self._stack = AsyncExitStack()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await self._stack.enter_async_context(self._make())

    async def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        await self.stop()

    async def stop(self) -> None:
        await self._stack.aclose()

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.returncode is None


def curve(seconds: float) -> Steps:
    """RATES over so many seconds."""
    each = seconds / len(RATES)
    steps: list[tuple[float, float]] = []
    for number, rate in enumerate(RATES):
        begin = number * each
        if rate >= 0:
            steps.append((begin, rate))
        else:
            steps += [(begin + second, -rate * (second % 2 == 0)) for second in range(max(1, round(each)))]
    return Steps((*steps, (seconds, 0.0)))


async def publish(sides: list[Side], data: Dataset, seconds: float) -> None:
    """To the clients in turn. The first side alone gets what is broken."""
    disturbed, random = sides[0], np.random.default_rng(0)
    clock = asyncio.get_running_loop().time
    rate, begin, last = curve(seconds), clock(), 0
    while (elapsed := clock() - begin) < seconds:
        due = int(rate.arrivals(elapsed))
        for number in range(last, due):
            device, row = number % len(NAMES), number // len(NAMES) % len(data)
            x, y = data.x[row].tolist(), int(data.y[row])
            good = json.dumps({"x": x, "y": y, "key": f"{number}"}).encode()
            for side in sides:
                side.sent[device].append(time.time())
                side.waiting.append((device, good))
            if not random.integers(MALFORMED):
                disturbed.broken["malformed"] += 1
                disturbed.waiting.append((device, good[: len(good) // 2]))
            if not random.integers(OUTLIERS):
                disturbed.broken["outliers"] += 1
                outlier = {"x": [1e30, *x[1:]], "y": y, "key": f"outlier {number}"}
                disturbed.waiting.append((device, json.dumps(outlier).encode()))
        last = due
        await asyncio.sleep(0.02)


@dataclass(slots=True)
class Gaps:
    """The longest that a sample had been there before an update followed, in seconds."""

    usual: float = 0.0
    disturbed: float = 0.0
    """Where a broker or the client was gone meanwhile."""
    each: list[float] = field(default_factory=list)


def gaps(side: Side, updates: list[list[float]], recovery: float) -> Gaps:
    """Return the gaps of `updates`, the arrival times of each device's updates.

    A restarted device is disturbed until `recovery` seconds after its first update.
    """
    found = Gaps()
    for device, times in enumerate(updates):
        sent, came = np.array(side.sent[device]), np.array([0.0, *times])
        hits = []
        for start, end, who in side.outages:
            back = int(np.searchsorted(came, end))
            if who in (None, device):
                hits.append((start, came[back] + recovery if back < len(came) else np.inf))
        after = np.searchsorted(sent, came)
        waits = {int(first) for first in after if first < len(sent)}
        for first in waits:
            following = np.searchsorted(came, sent[first], side="right")
            if following == len(came):
                continue
            gap = float(came[following] - sent[first])
            if any(start < came[following] and sent[first] < end for start, end in hits):
                found.disturbed = max(found.disturbed, gap)
            else:
                found.usual = max(found.usual, gap)
                found.each.append(gap)
    return found


def journaled(side: Side) -> tuple[list[int], list[list[float]]]:
    """(samples that were trained, times of the updates) of each device."""
    path = side.directory / "run" / "journal.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT name, time, samples FROM updates JOIN devices ON devices.id = device ORDER BY version"
        ).fetchall()
    mine = [[(when, samples) for name, when, samples in rows if name == one] for one in NAMES]
    return [sum(s for _, s in one) for one in mine], [[when for when, _ in one] for one in mine]


async def run(minutes: float, directory: Path) -> dict[str, Any]:
    recording = RECORDINGS[0]
    data = recording.read(Path(os.environ.get("EDGEFLOCK_DATA", ".")) / f"{recording.name}.npz")
    seconds, sides = 60 * minutes, [Side(directory, "disturbed"), Side(directory, "undisturbed")]
    async with AsyncExitStack() as stack:
        for side in sides:
            stack.push_async_callback(side.broker.stop)
            await side.broker.start()
            side.url = await stack.enter_async_context(server(side.directory, 0))
            for client in side.clients:
                stack.push_async_callback(client.stop)
                await client.start()
        for side in sides:
            await ready(FeedClient(side.url, ""), [side.log(device) for device in range(len(NAMES))])
        pumps = [asyncio.create_task(side.publish()) for side in sides]

        async def looking() -> None:
            while True:
                await asyncio.sleep(1)
                for side in sides:
                    await side.look()

        async def killing() -> None:
            begin = asyncio.get_running_loop().time()
            plan = [(part, None) for part in BROKER_KILLS] + [*CLIENT_KILLS]
            for part, device in sorted(plan, key=lambda one: one[0]):
                await asyncio.sleep(max(0.0, begin + part * seconds - asyncio.get_running_loop().time()))
                await (sides[0].kill_broker() if device is None else sides[0].kill_client(device))

        looks, kills = asyncio.create_task(looking()), asyncio.create_task(killing())
        await publish(sides, data, seconds)
        await kills
        while True:
            if not any(side.waiting for side in sides):
                break
            await asyncio.sleep(0.1)
        for side in sides:
            await settled(FeedClient(side.url, ""), NAMES)
        for task in (looks, *pumps):
            task.cancel()
        await asyncio.gather(looks, *pumps, return_exceptions=True)
        alive = {side.name: sum(client.lives for client in side.clients) for side in sides}
        for side in sides:
            for client in side.clients:
                await client.stop()
            await side.look()
    return {
        "command": f"python -m benchmarks.field --minutes {minutes:g}",
        "machine": machine(),
        **{side.name: {"clients alive": alive[side.name], **report(side)} for side in sides},
    }


def report(side: Side) -> dict[str, Any]:
    """What became of the samples, and how the model did on them before it had trained on them."""
    trained, updates = journaled(side)
    kept = Counter[str]()
    for reported, before in zip(side.reported, side.gone, strict=True):
        kept.update(
            {
                name: before[name] + int(reported.get(name, 0))
                for name in ("drops", "quarantined", "duplicates")
            }
        )
    left = sum(int(reported.get("left", 0)) for reported in side.reported)
    published, broken = sum(map(len, side.sent)), sum(side.broken.values())
    gap = gaps(side, updates, recovery=RECOVERY)
    return {
        "published": published + broken,
        **side.broken,
        "trained": sum(trained),
        "quarantined": kept["quarantined"],
        "dropped": kept["drops"],
        "left": left,
        "unaccounted": published + broken - sum(trained) - kept["quarantined"] - kept["drops"] - left,
        "duplicates": kept["duplicates"],
        "updates": sum(map(len, updates)),
        "largest gap, s": round(gap.usual, 2),
        "99.9% of gaps, s": round(float(np.quantile(gap.each, 0.999)), 2) if gap.each else None,
        "largest gap with a kill, s": round(gap.disturbed, 2),
        "prequential accuracy": round(float(np.mean(side.accuracies)), 4) if side.accuracies else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.field", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the figures as JSON")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of logs, journals and buffers")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = arguments.keep or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            found = asyncio.run(run(arguments.minutes, folder))
    except EdgeflockError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
