"""Elastic averaging over real sockets: sync SGD, EASGD and staggered EASGD behind links of a limited rate.

    python -m benchmarks.narrow [--mbps 100] [--seconds 60]

A server and three client processes on loopback train the MLP of 3,465,514 parameters on MNIST's digits in a
frame, as `edgeflock reproduce easgd --quick` does. Each client reaches the server through a relay of its own,
which lets so many megabits a second pass, each way. Prints a line of JSON a method: samples a second of
all three, by the server's count, and what passed through the relays, once all have made two exchanges.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.stragglers import server_of, status
from edgeflock.papers.easgd.reproduce import make_digits
from edgeflock.papers.easgd.settings import BATCH, EASGD, NODES, PERIOD, STAGGERED, SYNC, TASKS
from edgeflock.papers.machine import machine
from edgeflock.papers.reproduce import AS_PUBLISHED, Method

JOIN_SECONDS = 300
"""On a busy machine importing alone takes a minute."""

_PIECE = 1 << 16


class Lane:
    """One direction of a link: what passes waits until what came before it is through."""

    def __init__(self, mbps: float) -> None:
        self._seconds_a_byte = 8e-6 / mbps
        self._free = 0.0
        self.passed = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until `reader` ends."""
        now = asyncio.get_running_loop().time
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                self._free = max(self._free, now()) + len(piece) * self._seconds_a_byte
                await asyncio.sleep(self._free - now())
                self.passed += len(piece)
                writer.write(piece)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def narrow_link(target: int, lanes: tuple[Lane, Lane]) -> AsyncIterator[int]:
    """A port that leads to 127.0.0.1:target, through one of `lanes` up and the other down."""
    relays: list[asyncio.Task[None] | None] = []
    writers: list[asyncio.StreamWriter] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relays.append(asyncio.current_task())
        from_server, to_server = await asyncio.open_connection("127.0.0.1", target)
        writers.extend((writer, to_server))
        await asyncio.gather(lanes[0].carry(reader, to_server), lanes[1].carry(from_server, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for one in writers:
            one.transport.abort()
        await asyncio.gather(*filter(None, relays), return_exceptions=True)


@contextmanager
def client(port: int, name: str, data: Path) -> Iterator[None]:
    values = {
        "server": f"http://127.0.0.1:{port}",
        "name": name,
        "data": f"npz:{data}?part={name}/{NODES}",
        "backend": "torch",
        "health": "false",
    }
    arguments = [argument for key, value in values.items() for argument in ("--set", f"client.{key}={value}")]
    process = subprocess.Popen([sys.executable, "-m", "edgeflock", "client", *arguments])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def measured(method: Method, folder: Path, data: Path, mbps: float, seconds: float) -> dict[str, Any]:
    """`method` for so many seconds."""
    mlp = TASKS[0]
    settings: dict[str, object] = {
        **AS_PUBLISHED,
        "server.directory": folder / method.name.replace(" ", "-"),
        "server.port": 0,
        "server.open": "true",
        "local.batch": BATCH,
        "local.rate": mlp.rate,
        "journal.keep_updates": "false",
        "model.module": mlp.module,
        "model.data": "",
        "coordination.learning_rate": mlp.rate,
        **method.settings,
    }
    exchange = BATCH if method is SYNC else BATCH * PERIOD
    lanes = [(Lane(mbps), Lane(mbps)) for _ in range(NODES)]
    async with AsyncExitStack() as opened:
        port = opened.enter_context(server_of(settings))
        for number, pair in enumerate(lanes, 1):
            own = await opened.enter_async_context(narrow_link(port, pair))
            opened.enter_context(client(own, str(number), data))

        async def counted() -> list[int]:
            return [one["samples"] for one in (await asyncio.to_thread(status, port))["devices"]]

        def passed() -> int:
            return sum(lane.passed for pair in lanes for lane in pair)

        async with asyncio.timeout(JOIN_SECONDS):
            before = await counted()
            while len(before) < NODES or min(before) < 2 * exchange:
                await asyncio.sleep(0.2)
                before = await counted()
        began, through = time.monotonic(), passed()
        await asyncio.sleep(seconds)
        after, elapsed = await counted(), time.monotonic() - began
        return {
            "method": method.name,
            "mbps": mbps,
            "samples_per_second": round((sum(after) - sum(before)) / elapsed, 1),
            "megabytes_per_second": round((passed() - through) / elapsed / 1e6, 2),
            "seconds": round(elapsed, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.narrow", description=__doc__.split("\n")[0])
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", type=Path, default=Path(folder) / "mnist.npz", help="MNIST's archive")
    parser.add_argument("--mbps", type=float, default=100.0, help="of each client's link, each way")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    print(json.dumps({"machine": machine()}), flush=True)
    for method in (SYNC, EASGD, STAGGERED):
        with tempfile.TemporaryDirectory() as place:
            data = Path(place) / "digits.npz"
            make_digits(options.data, data, 1)
            found = measured(method, Path(place), data, options.mbps, options.seconds)
            print(json.dumps(asyncio.run(found)), flush=True)


if __name__ == "__main__":
    main()
