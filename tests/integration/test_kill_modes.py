"""Servers are killed (kill -9) under rounds of tasks, elastic averaging, buffers and optimizers: processes,
real sockets."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.audit import digest_of
from benchmarks.kill import Server, _free_port
from benchmarks.updates import LAYOUT
from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training import Worker
from edgeflock.client.training.selector import LocalSteps
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.transport import Link
from edgeflock.server.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Receipt, Update, Welcome

Vector = NDArray[np.float32]

KILLS = 2
BETWEEN = 20
"""Versions that a server lives to make."""

TASKS = ("coordination.mode=tasks", "coordination.deadline=3600", "coordination.tasks=2")
COHORT = (
    "coordination.mode=cohort",
    "coordination.deadline=3600",
    "coordination.cohort=1",
    "coordination.cohort_rounds=2",
)
ELASTIC = (
    "coordination.mode=elastic",
    "coordination.rule=elastic",
    "coordination.moving_rate=0.2",
    "coordination.chunk=8000",
    "local.steps=3",
    "compression.select=1",
    "compression.values=f32",
)
NOISY = (
    "coordination.mode=buffer",
    "coordination.buffer=2",
    "coordination.rule=sqrt",
    "privacy.mode=server",
    "privacy.noise=0.1",
    "privacy.devices=100",
    "privacy.tree=4",
)
"""Trees end early, as three devices cannot fill them."""
BUFFER = (
    "coordination.mode=buffer",
    "coordination.buffer=7",
    "optimizer.kind=adamw",
    "optimizer.weight_decay=0.01",
    "optimizer.clip=1",
    "optimizer.schedule=cosine",
    "optimizer.schedule_unit=seconds",
    "optimizer.period=60",
    "journal.snapshot_every=13",
)
PRIVATE = (
    "coordination.mode=private",
    "coordination.rule=none",
    "coordination.deadline=3600",
    "compression.select=0.5",
)
MOMENTUM = ("optimizer.kind=nesterov", "optimizer.warmup=20", "journal.snapshot_every=13")


@dataclass
class Seen:
    """What devices and servers were told or came up with."""

    models: dict[int, str] = field(default_factory=dict)
    """version -> SHA-256 of theta."""
    receipts: dict[tuple[str, int], int] = field(default_factory=dict)
    """(device, sequence) -> version."""

    @property
    def newest(self) -> int:
        return max([*self.models, *self.receipts.values()], default=0)

    def model(self, version: int, digest: str) -> None:
        assert self.models.setdefault(version, digest) == digest, f"there are two versions {version}"


class Hill:
    """A backend whose gradient is theta itself."""

    layout = LAYOUT

    def gradient(self, theta: Vector, x: Vector, y: NDArray[np.generic]) -> Gradient:
        return Gradient(1.0, theta.copy(), np.zeros(0, np.float32))


async def device(seen: Seen, servers: str, number: int) -> None:
    """A whole worker with two of three shards, until it is cancelled."""
    name = "abc"[number]
    shards = f"{'xyz'[number]},{'yzx'[number]}"
    batches = Shuffled(Dataset(np.zeros((20, 1), np.float32), np.arange(20)), np.random.default_rng(number))

    async def hurry(delay: float) -> None:
        await asyncio.sleep(min(delay, 0.02))

    async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    class Watched(Trainer):
        def step(self, theta: Vector, base: int, *more: Any) -> Update:
            seen.model(base, digest_of(theta))
            return super().step(theta, base, *more)

        def contribute(self, theta: Vector, base: int) -> LocalSteps:
            seen.model(base, digest_of(theta))
            return super().contribute(theta, base)

    class Noting(Link):
        async def push(self, update: Update) -> Receipt:
            receipt = await super().push(update)
            seen.receipts[name, receipt.sequence] = receipt.version
            return receipt

    async def make(welcome: Welcome) -> Trainer:
        return Watched(Hill(), batches, welcome)

    hello = Hello(PROTOCOL, name, LAYOUT.digest, {}, shards=shards)
    async with Noting(servers, None, hello, Random(number), hurry) as line:
        await Worker(line, make, batches, at_once, choose=lambda shard: None).run()


@pytest.mark.parametrize(
    "settings",
    [TASKS, COHORT, ELASTIC, BUFFER, MOMENTUM, PRIVATE, NOISY],
    ids=["tasks", "cohort", "elastic", "buffer", "momentum", "private", "noisy"],
)
async def test_what_devices_were_told_is_what_a_killed_server_comes_back_with(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    port = _free_port(Random())
    server, seen = Server(tmp_path, port, *settings), Seen()
    server.start()
    devices: list[asyncio.Task[None]] = []
    newest = 0
    try:
        for _ in range(KILLS):
            opened = await server.ready()
            devices = devices or [asyncio.create_task(device(seen, at(port), number)) for number in range(3)]
            assert opened.version >= newest
            seen.model(opened.version, opened.digest)
            while seen.newest < opened.version + BETWEEN:
                await asyncio.sleep(0.01)
                assert not any(one.done() for one in devices)
            server.kill()
            newest = seen.newest  # from now on it may be of the next one
            server.start()
        opened = await server.ready()
        assert opened.version >= newest
        seen.model(opened.version, opened.digest)
    finally:
        for one in devices:
            one.cancel()
        await asyncio.gather(*devices, return_exceptions=True)
        server.kill()
    check(tmp_path / "journal.sqlite", seen)


def at(*ports: int) -> str:
    return ",".join(f"http://127.0.0.1:{port}" for port in ports)


class Gateway:
    """An `edgeflock gateway` process."""

    def __init__(self, leader: int, port: int) -> None:
        self._command = [sys.executable, "-m", "edgeflock", "gateway"]
        self._command += ["--upstream", at(leader), "--port", str(port)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.long
@pytest.mark.parametrize("settings", [TASKS, COHORT, BUFFER], ids=["tasks", "cohort", "buffer"])
async def test_so_it_is_through_gateways_that_are_killed_too(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    port, first, second = (_free_port(Random()) for _ in range(3))
    server, seen = Server(tmp_path, port, *settings), Seen()
    server.start()
    gateways, devices = [Gateway(port, first), Gateway(port, second)], []
    try:
        opened = await server.ready()
        seen.model(opened.version, opened.digest)
        several = (at(first, second), at(second, first), at(first, second))
        devices = [
            asyncio.create_task(device(seen, servers, number)) for number, servers in enumerate(several)
        ]
        for fails in (gateways[0], server, gateways[1], None):
            before = seen.newest
            while seen.newest < before + BETWEEN:
                await asyncio.sleep(0.01)
                assert not any(one.done() for one in devices)
            if fails is not None:
                fails.kill()
                newest = seen.newest  # from now on it may be of the next server
                fails.start()
            if fails is server:
                opened = await server.ready()
                assert opened.version >= newest
                seen.model(opened.version, opened.digest)
    finally:
        for one in devices:
            one.cancel()
        await asyncio.gather(*devices, return_exceptions=True)
        for one_of_them in gateways:
            one_of_them.kill()
        server.kill()
    check(tmp_path / "journal.sqlite", seen)


def check(path: Path, seen: Seen) -> None:
    """Hold the journal against what devices were told."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT name, sequence, version FROM updates JOIN devices ON device = devices.id"
        ).fetchall()
    versions = {(name, sequence): version for name, sequence, version in rows}
    assert len(versions) == len(rows), "no update is there twice"
    assert sorted(versions.values()) == list(range(1, len(rows) + 1))
    assert seen.receipts.items() <= versions.items()
    assert len(rows) >= seen.newest >= KILLS * BETWEEN
    with closing(Journal(path)) as journal:
        for parameters in (recover(journal, LAYOUT, replay(journal, LAYOUT).regime), replay(journal, LAYOUT)):
            seen.model(parameters.version, digest_of(parameters.theta))
