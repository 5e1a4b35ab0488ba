"""What monitors cost a push: server CPU a push with none, one and sixteen that read, and one that is stuck.

P = 211,690, c = .01, 4-bit values, 16 devices that push as fast as they can; a frame a second for a monitor.
All are measured in turn against the same server, several times. Prints one JSON object.
"""

import asyncio
import json
import socket
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import numpy as np

from benchmarks import load
from benchmarks.updates import random_update
from edgeflock.papers.machine import machine
from edgeflock.shared.protocol.feed import decode

DEVICES, LAG, SECONDS, ROUNDS = 16, 200, 2.0, 11
WATCHING = {"none": 0, "one": 1, "sixteen": 16}


@asynccontextmanager
async def watching(port: int) -> AsyncIterator[None]:
    """A monitor that reads and decodes all frames."""

    async def read() -> None:
        async for message in feed:
            decode(message.data)

    async with aiohttp.ClientSession() as http, http.ws_connect(f"http://127.0.0.1:{port}/v1/feed") as feed:
        reading = asyncio.create_task(read())
        try:
            yield
        finally:
            reading.cancel()


@asynccontextmanager
async def stuck(port: int) -> AsyncIterator[None]:
    """A monitor that asks for five frames a second and reads none."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.connect(("127.0.0.1", port))
        sock.sendall(
            b"GET /v1/feed?interval=0.2 HTTP/1.1\r\nHost: server\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        yield


async def main() -> dict[str, object]:
    random = np.random.default_rng(0)
    updates = [random_update(load.PAPER_CNN, 0.01, "codebook4", random) for _ in range(DEVICES)]
    costs: dict[str, list[float]] = {name: [] for name in (*WATCHING, "stuck")}
    with load.edgeflock(load.PAPER_CNN) as server:
        await load.measure(server, updates, DEVICES, 1.0, lag=LAG)
        for turn in range(ROUNDS):
            names = list(costs)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                async with AsyncExitStack() as watchers:
                    for _ in range(WATCHING.get(name, 0)):
                        await watchers.enter_async_context(watching(server[0]))
                    if name == "stuck":
                        await watchers.enter_async_context(stuck(server[0]))
                    measured = await load.measure(server, updates, DEVICES, SECONDS, lag=LAG)
                costs[name].append(measured.cpu_microseconds)
    return {
        "machine": machine(),
        "devices": DEVICES,
        "push_cpu_us": {name: round(statistics.median(cost), 1) for name, cost in costs.items()},
        "over_none": {
            name: round(statistics.median(w / n for w, n in zip(cost, costs["none"], strict=True)), 3)
            for name, cost in costs.items()
            if name != "none"
        },
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main()), indent=2))
