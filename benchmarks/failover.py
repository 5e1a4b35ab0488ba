"""Two servers, two databases, and at random one of them fails: what was acknowledged is there, once.

    python -m benchmarks.failover [--rounds 100] [--seed 0] [--lease 2] [--shards 0]

A PostgreSQL with a synchronous standby keeps the journal. Two `edgeflock server --standby` share it; devices
push to whichever leads. In each round, at random: the leader is killed (SIGKILL); it is paused (SIGSTOP) for
twice the lease; it hangs until another one has answered a device; the database is killed and its standby
promoted; or the leader is cut off from the database for twice the lease, its connections open and silent;
with --shards, one of the leader's shards is killed.
Then all receipts are held against the journal, and the model that a start finds against a replay from version
0. It prints a line a round, and JSON at the end.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np

from benchmarks.audit import Audit, initial_theta
from benchmarks.faults.device import Notes
from benchmarks.faults.server import SETTINGS
from benchmarks.updates import LAYOUT
from edgeflock.server.ledger import copy
from tests.ports import lasting
from tests.postgres import Cluster, cluster, needed, standby

FAULTS = ("kill", "pause", "hang", "database", "cut")
SHARD = "shard"
"""Another one, of runs in shards."""
_PATIENCE = 300.0
"""Seconds: on a busy machine, servers take minutes to come up."""


@dataclass(slots=True)
class Line:
    """A proxy between a server and the database: cut, it keeps connections open and passes nothing on."""

    target: int
    port: int = 0
    whole: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, onward = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self._pass(reader, onward), self._pass(there, writer))
            onward.transport.abort()
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while octets := await reader.read(1 << 16):
                await self.whole.wait()
                writer.write(octets)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def line(target: int) -> AsyncIterator[Line]:
    one = Line(target)
    one.whole.set()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()


@dataclass(slots=True)
class Server:
    """An `edgeflock server --standby` process."""

    folder: Path
    port: int
    url: str
    line: Line
    lease: float
    shards: int
    process: asyncio.subprocess.Process | None = None
    led: float = 0.0
    """When it last said that it leads, by the monotonic clock."""
    _reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        settings = (
            *(setting for setting in SETTINGS if not setting.startswith("model.data")),
            f"model.module=arrays:{self.folder.parent / 'model.npz'}",
            f"server.directory={self.folder}",
            f"server.port={self.port}",
            f"journal.url={self.url}",
            f"journal.lease={self.lease}",
            "journal.snapshot_every=200",
            f"scale.shards={self.shards}",
        )
        command = [sys.executable, "-m", "edgeflock", "server", "--standby", "--json"]
        for setting in settings:
            command += ["--set", setting]
        with self.folder.with_suffix(".log").open("a") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        self._reader = asyncio.create_task(self._listen(self.process))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while await process.stdout.readline():
            self.led = time.monotonic()

    async def answers(self) -> int:
        """200: it leads; 503: it stands by; 0: it does not answer."""
        try:
            async with asyncio.timeout(5), aiohttp.ClientSession() as http:
                async with http.get(f"http://127.0.0.1:{self.port}/readyz") as answer:
                    return answer.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0

    async def standing(self) -> tuple[list[int], int]:
        """(The processes of its shards, how often one was made again)."""
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{self.port}/v1/status") as answer:
                shards = (await answer.json())["shards"]
        return [shard["process"] for shard in shards["processes"]], shards["restored"]

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


class Scene:
    """Everything at work."""

    def __init__(self, place: Path, opened: ExitStack, lease: float, seed: int) -> None:
        self.place, self.lease, self.random = place, lease, random.Random(seed)
        self._opened = opened
        self.notes = Notes(place / "receipts")
        self.servers: list[Server] = []
        self.primary = opened.enter_context(cluster())
        self.schema = self.primary.fresh().rpartition("%3D")[2]
        self.second = self._another()

    def _another(self) -> Cluster:
        return self._opened.enter_context(standby(self.primary))

    async def leader(self) -> Server:
        """Whoever leads, once devices get receipts of it and the other one stands by."""
        until = time.monotonic() + _PATIENCE
        while sorted([await server.answers() for server in self.servers]) != [200, 503]:
            assert time.monotonic() < until, "nobody leads, or nobody stands by"
            await asyncio.sleep(0.1)
        await self.receipt(time.monotonic())
        return max(self.servers, key=lambda server: server.led)

    async def receipt(self, since: float) -> float:
        """When the first receipt came after `since`."""
        until = time.monotonic() + _PATIENCE
        while True:
            found = [one.at for one in self.notes.all()[-200:] if one.at > since]
            if found:
                return found[0]
            assert time.monotonic() < until, "no device gets an answer"
            await asyncio.sleep(0.05)

    async def led(self, since: float) -> float:
        """When a server took the lead after `since`."""
        until = time.monotonic() + _PATIENCE
        while not (found := [server.led for server in self.servers if server.led > since]):
            assert time.monotonic() < until, "nobody takes over"
            await asyncio.sleep(0.02)
        return min(found)

    async def fail(self, fault: str) -> tuple[float, float]:
        """Seconds from one fault until somebody leads, and until a device gets a receipt."""
        leader, began = await self.leader(), time.monotonic()
        if fault == "kill":
            await leader.end()
        elif fault in ("pause", "hang"):
            leader.send(signal.SIGSTOP)
        elif fault == "cut":
            leader.line.whole.clear()
        elif fault == SHARD:
            return 0.0, await self._lose_a_shard(leader) - began
        else:
            self.primary.kill()
            await asyncio.to_thread(self.second.promote)
            for server in self.servers:
                server.line.target = self.second.port
        led = await self.led(began)
        if fault in ("pause", "cut"):
            await asyncio.sleep(max(0.0, began + 2 * self.lease - time.monotonic()))
            leader.send(signal.SIGCONT)
            leader.line.whole.set()
        served = await self.receipt(led)
        if fault == "hang":
            leader.send(signal.SIGCONT)
        if fault == "kill":
            await leader.start()
        elif fault == "database":
            self.primary = self.second
            self.second = await asyncio.to_thread(self._another)
        return led - began, served - began

    async def _lose_a_shard(self, leader: Server) -> float:
        """When the first receipt came of the shards that were made again."""
        processes, before = await leader.standing()
        os.kill(self.random.choice(processes), signal.SIGKILL)
        until = time.monotonic() + _PATIENCE
        while (await leader.standing())[1] == before:
            assert time.monotonic() < until, "the shard is not missed"
            await asyncio.sleep(0.1)
        return await self.receipt(time.monotonic())

    def verdict(self) -> dict[str, object]:
        """Of the journal, copied to a file, where the audit reads it; all is ended."""
        receipts = {(one.name, one.sequence): one.version for one in self.notes.all()}
        path = self.place / "journal.sqlite"
        moved = copy(self.primary.url(self.schema), f"sqlite:{path}")
        audit = Audit()
        audit.journal(path, receipts)
        audit.restarts(path)
        return {
            "acknowledged": len(receipts),
            "version": moved.version,
            "lost": len(audit.lost),
            "doubled": len(audit.doubled),
            "gaps": audit.gaps,
            "bit_identical": audit.bit_identical,
        }


async def run(
    rounds: int, seed: int, lease: float, place: Path, faults: tuple[str, ...] = FAULTS, shards: int = 0
) -> dict[str, object]:
    """What came of so many faults."""
    (place / "receipts").mkdir(parents=True)
    theta = initial_theta()
    arrays = {t.name: theta[t.start : t.stop].reshape(t.shape) for t in LAYOUT.tensors}
    np.savez(place / "model.npz", **arrays)  # type: ignore[arg-type]
    took: dict[str, list[tuple[float, float]]] = {fault: [] for fault in faults}
    with ExitStack() as opened:
        scene = Scene(place, opened, lease, seed)
        async with line(scene.primary.port) as first, line(scene.primary.port) as second:
            for number, proxy in enumerate((first, second)):
                url = scene.primary.url(scene.schema, proxy.port)
                server = Server(place / f"run{number}", lasting(), url, proxy, lease, shards)
                scene.servers.append(server)
                await server.start()
            urls = ",".join(f"http://127.0.0.1:{server.port}" for server in scene.servers)
            names = [f"device-{number}" for number in range(4)]
            with (place / "devices.log").open("w") as log:
                command = [sys.executable, "-m", "benchmarks.faults.device", urls, str(place / "receipts")]
                devices = await asyncio.create_subprocess_exec(
                    *command, str(seed), "0.02", *names, stderr=log
                )
            try:
                for number in range(rounds):
                    fault = scene.random.choice(faults) if number >= len(faults) else faults[number]
                    await scene.leader()
                    await asyncio.sleep(scene.random.uniform(0.2, 1.5))
                    took[fault].append(await scene.fail(fault))
                    led, served = took[fault][-1]
                    print(f"{number + 1} {fault}: led {led:.1f} s, served {served:.1f} s", file=sys.stderr)
            finally:
                devices.kill()
                await devices.wait()
                for server in scene.servers:
                    await server.end()
            await asyncio.sleep(0.5)
            return {
                **await asyncio.to_thread(scene.verdict),
                **{fault: _summary(times) for fault, times in took.items() if times},
            }


def _summary(times: list[tuple[float, float]]) -> dict[str, object]:
    led, served = (sorted(column) for column in zip(*times, strict=True))
    return {
        "rounds": len(times),
        "led": {"median": round(led[len(led) // 2], 2), "longest": round(led[-1], 2)},
        "served": {"median": round(served[len(served) // 2], 2), "longest": round(served[-1], 2)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lease", type=float, default=2.0)
    parser.add_argument("--shards", type=int, default=0)
    asked = parser.parse_args()
    needed()
    with tempfile.TemporaryDirectory(prefix="edgeflock-failover-") as place:
        faults = (*FAULTS, SHARD) if asked.shards else FAULTS
        work = run(asked.rounds, asked.seed, asked.lease, Path(place), faults, asked.shards)
        print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
