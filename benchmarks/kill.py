"""kill -9 of a server at random moments under load: is every acknowledged update kept, and kept once?

A server process, over real sockets, is killed and started again on the same directory and port while devices
push through the client's own transport. After each kill a copy of the journal is held against all receipts
so far, and the parameters of the next server against those of a replica that applied the journaled updates
without any interruption; in the end also against a replay from version 0.

What a killed process wrote stays with the kernel, so this measures what a crash of the server costs. That a
crash of the machine costs no more is SQLite's promise (WAL, synchronous = FULL).
"""

import argparse
import asyncio
import hashlib
import json
import logging
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.audit import REGIME, Audit, copy_journal, digest_of, initial_theta
from benchmarks.hosting import hosted_run
from benchmarks.plain import EXACT
from benchmarks.updates import LAYOUT, random_update
from edgeflock.client.transport import Link
from edgeflock.papers.machine import machine
from edgeflock.server.app import create_app, listen
from edgeflock.server.ledger import claim_run
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import BaseExpired
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Update
from edgeflock.shared.settings.config import parse

SNAPSHOT_EVERY = 200
"""Small, so that kills hit snapshots too."""

MOMENTS = (
    "committing", "random", "recovering", "in flight", "random",
    "committing", "random", "in flight", "committing", "random",
)  # fmt: skip
"""When a server is killed, in turn: at any moment after it is ready; while it reads the journal; then, within
milliseconds of a device's beginning a push; or then, as soon as the journal has been written to."""

LONGEST_LIFE, LONGEST_PUSH, LONGEST_RECOVERY = 0.4, 0.003, 0.03
"""Seconds within which the random moment falls: after the server is ready, a push begins, reading begins."""

PRELOADED = ["benchmarks.audit", "edgeflock.client.transport", "edgeflock.server.app"]
"""What this file imports and takes long."""

Receipts = dict[tuple[str, int], int]
"""(device, sequence) -> version."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a server came up with."""

    version: int
    digest: str
    recovery_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """How it went. All but the first four, the times and `resent` should be 0 or true."""

    kills: int
    moments: dict[str, int]
    acknowledged: int
    """Updates that a device got a receipt for."""
    resent: int
    """Of these, how many got it over a later connection than they were first sent on."""
    resent_after_journaled: int
    """Of these, how many a killed server had journaled already: applying them again would double them."""
    lost: int
    """Acknowledged, but not in the journal with the acknowledged version."""
    doubled: int
    """Journaled more than once."""
    unacknowledged: int
    """Journaled, though in the end no device got a receipt for it."""
    gaps: int
    """Versions missing between 1 and the newest."""
    bit_identical: bool
    """Every server that came up, the last model pulled from it, recover() and replay() agree bit for bit."""
    recovery_ms: dict[str, float]
    """From opening the journal to an engine, in the server."""
    restart_ms: dict[str, float]
    """From the start of the process until it listens."""
    seconds: float
    machine: str

    @property
    def flawless(self) -> bool:
        return self.bit_identical and not (self.lost or self.doubled or self.unacknowledged or self.gaps)


def _serve(pipe: Connection, directory: str, port: int, *more: str) -> None:
    """The server process. Sends None before it opens the journal and an Opened once it listens."""

    async def main() -> None:
        settings = [*EXACT, f"coordination.window={REGIME.window}"]
        if "coordination.mode=elastic" not in more:
            settings.append(f"coordination.learning_rate={REGIME.learning_rate}")
        settings += [f"coordination.rule={REGIME.rule}", f"journal.snapshot_every={SNAPSHOT_EVERY}"]
        config = parse(overrides=["server.open=true", "model.data=", *settings, *more])
        pipe.send(None)
        began = time.perf_counter()
        claim_of = claim_run(Path(directory), "directory", LAYOUT, initial_theta(), config)
        with claim_of as claim, hosted_run(claim, Path(directory)) as hosted:
            elapsed = time.perf_counter() - began
            version, theta = claim.engine.theta()
            opened = Opened(version, digest_of(theta), elapsed * 1e3)
            async with listen(create_app(config, hosted), "127.0.0.1", port):
                pipe.send(opened)
                await asyncio.Event().wait()

    asyncio.run(main())


class Server:
    """A server process that can be killed and started again."""

    def __init__(self, directory: Path, port: int, *settings: str) -> None:
        # Forked from a process that has imported everything and runs nothing: a cycle is all run, no imports.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._arguments = (str(directory), port, *settings)
        self.restart_ms: list[float] = []

    def start(self) -> None:
        self._began = time.perf_counter()
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    async def reading(self) -> None:
        """Return when the server is about to open its journal."""
        await asyncio.to_thread(self._next)

    async def ready(self) -> Opened:
        """Return when the server listens."""
        opened = None
        while opened is None:
            opened = await asyncio.to_thread(self._next)
        self.restart_ms.append((time.perf_counter() - self._began) * 1e3)
        return opened

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _next(self) -> Opened | None:
        if not self._pipe.poll(300):  # on a busy machine imports alone take a minute
            raise TimeoutError("the server does not come up")
        message = self._pipe.recv()
        assert message is None or isinstance(message, Opened)
        return message


@dataclass(slots=True)
class Fleet:
    """What the devices and the one who kills share."""

    port: int
    pushing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a device begins a push."""
    over: bool = False
    kills: int = 0
    receipts: Receipts = field(default_factory=dict)
    resent: list[tuple[int, int]] = field(default_factory=list)
    """(version, kills until then) of each receipt that took more than one connection."""

    def link(self, name: str, random: Random) -> Link:
        async def hurry(delay: float) -> None:
            # A server lives for a fraction of a second: back off as the transport says, but not for long.
            await asyncio.sleep(min(delay, 0.02))

        return Link(f"http://127.0.0.1:{self.port}", None, Hello(PROTOCOL, name, b"", {}), random, hurry)


async def device(fleet: Fleet, name: str, seed: int) -> None:
    """Push random valid updates and remember every receipt, until the fleet is over."""
    random = Random(seed)
    updates = _updates(np.random.default_rng(seed))
    async with fleet.link(name, random) as link:
        welcome = await link.join()
        version, sequence = welcome.version, welcome.sequence + 1
        while not fleet.over:
            # Bases from before a kill make the weights depend on the staleness that the restart recovered.
            base = max(0, version - random.randrange(100))
            connections = link.connections
            chosen = replace(
                random.choice(updates), sequence=sequence, base=base, pull=random.random() < 0.25
            )
            fleet.pushing.set()
            try:
                receipt = await link.push(chosen)
            except BaseExpired:
                version = (await link.pull(None)).version
                continue
            assert receipt.sequence == sequence, f"{name} got the receipt of another update: {receipt}"
            fleet.receipts[name, sequence] = receipt.version
            if link.connections > connections:
                fleet.resent.append((receipt.version, fleet.kills))
            version = receipt.model.version if receipt.model else receipt.version
            sequence += 1


def _updates(random: np.random.Generator) -> list[Update]:
    """Every value coding thrice at c = .05, those with signs once with raw indices, and one dense update."""
    sparse_ones = [random_update(LAYOUT, 0.05, coding, random) for coding in [*values.CODINGS] * 3]
    signed = [coding for coding in values.CODINGS if coding != "scale"]
    raw = [_with_raw_indices(random_update(LAYOUT, 0.05, coding, random)) for coding in signed]
    return [*sparse_ones, *raw, random_update(LAYOUT, 1, str(random.choice(signed)), random)]


def _with_raw_indices(update: Update) -> Update:
    where = sparse.decode(update.indices, update.count, LAYOUT.size, update.index_mode)
    return replace(update, index_mode=sparse.RAW, indices=sparse.encode(where, LAYOUT.size, sparse.RAW))


def _await_write(log: Path, seconds: float = 0.05) -> None:
    """Return as soon as SQLite has written to its log, or after a while.

    It does not let the devices run meanwhile, so that the kill comes before they have the receipts.
    """
    deadline, before = time.perf_counter() + seconds, log.stat()
    while time.perf_counter() < deadline:
        now = log.stat()
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            return


def _free_port(random: Random) -> int:
    """A free port that the kernel gives to no outgoing connection.

    A device that dials a port of that range while no server listens may be connected to itself, and would
    hold the port for good.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port := random.randrange(lowest - 8192, lowest)))
            except OSError:
                continue
            return port


async def run(directory: Path, kills: int, seed: int, devices: int) -> Report:
    """Kill `kills` servers that share the journal in `directory` while `devices` push to them."""
    began, random = time.perf_counter(), Random(seed)
    fleet, audit = Fleet(_free_port(Random())), Audit()
    server = Server(directory, fleet.port)
    recoveries: list[float] = []
    journaled: list[int] = []
    scratch = directory / "copy"
    scratch.mkdir()

    async def opened() -> None:
        come_up = await server.ready()
        audit.same(come_up.version, come_up.digest)
        recoveries.append(come_up.recovery_ms)

    server.start()
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(devices):
                group.create_task(device(fleet, f"device-{number}", seed * 1000 + number))
            for number in range(kills):
                moment = MOMENTS[number % len(MOMENTS)]
                if moment == "recovering":
                    await server.reading()
                    await asyncio.sleep(random.uniform(0, LONGEST_RECOVERY))
                else:
                    await opened()
                    await asyncio.sleep(random.uniform(0, LONGEST_LIFE))
                if moment in ("in flight", "committing"):
                    fleet.pushing.clear()
                    await fleet.pushing.wait()
                    await asyncio.sleep(random.uniform(0, LONGEST_PUSH) if moment == "in flight" else 0)
                if moment == "committing":
                    _await_write(directory / "journal.sqlite-wal")
                server.kill()
                fleet.kills += 1
                copy, receipts = copy_journal(directory, scratch), dict(fleet.receipts)
                server.start()
                journaled.append(await asyncio.to_thread(audit.journal, copy, receipts))
            await opened()
            await asyncio.sleep(LONGEST_LIFE)
            fleet.over = True
        async with fleet.link("reader", random) as link:
            await link.join()
            model = await link.pull(None)
    finally:
        server.kill()
    path = directory / "journal.sqlite"
    audit.journal(path, fleet.receipts)
    audit.same(model.version, hashlib.sha256(model.values).hexdigest())
    audit.restarts(path)
    return Report(
        kills=kills,
        moments=dict(Counter(MOMENTS[number % len(MOMENTS)] for number in range(kills))),
        acknowledged=len(fleet.receipts),
        resent=len(fleet.resent),
        resent_after_journaled=sum(version <= journaled[kills - 1] for version, kills in fleet.resent),
        lost=len(audit.lost),
        doubled=len(audit.doubled),
        unacknowledged=audit.unacknowledged,
        gaps=audit.gaps,
        bit_identical=audit.bit_identical,
        recovery_ms=_spread(recoveries[1:]),
        restart_ms=_spread(server.restart_ms[1:]),
        seconds=round(time.perf_counter() - began, 1),
        machine=machine(),
    )


def _spread(numbers: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(numbers), 1), "max": round(max(numbers), 1)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    # A device tells of every server that it misses.
    logging.getLogger("edgeflock.client.transport.retrying").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(run(Path(directory), arguments.kills, arguments.seed, arguments.devices))
    if arguments.json:
        print(json.dumps(asdict(report), indent=2))
    else:
        for name, value in asdict(report).items():
            print(f"{name:24}{value}")
    return 0 if report.flawless else 1


if __name__ == "__main__":
    sys.exit(main())
