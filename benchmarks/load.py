"""A server process without a model, an echo server, and devices that push ready-made updates."""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
from aiohttp import web

from benchmarks.hosting import hosted_run
from benchmarks.plain import EXACT
from edgeflock.server.app import create_app, listen
from edgeflock.server.ledger import claim_run
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import chain, wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Model, Pull, Receipt, Update, Welcome
from edgeflock.shared.settings.config import parse

PAPER_CNN = Layout.from_shapes(
    [
        ("conv1.weight", (32, 1, 3, 3)),
        ("conv1.bias", (32,)),
        ("conv2.weight", (32, 32, 3, 3)),
        ("conv2.bias", (32,)),
        ("dense1.weight", (128, 1568)),
        ("dense1.bias", (128,)),
        ("dense2.weight", (10, 128)),
        ("dense2.bias", (10,)),
    ]
)


def _serve_edgeflock(
    ready: Connection, layout: Layout, directory: str, window: int, settings: Sequence[str]
) -> None:
    async def main() -> None:
        # A snapshot of a large model would dominate a short measurement; its cost is stated apart.
        snapshots = 10**9 if layout.size > 10**6 else 1000
        config = parse(
            overrides=[
                "server.open=true", "model.data=", f"journal.snapshot_every={snapshots}", *EXACT,
                f"coordination.window={window}", "coordination.learning_rate=1e-3", *settings,
            ]
        )  # fmt: skip
        theta = np.zeros(layout.size, np.float32)
        claim_of = claim_run(Path(directory), "directory", layout, theta, config)
        with claim_of as claim, hosted_run(claim, Path(directory)) as hosted:
            async with listen(create_app(config, hosted), "127.0.0.1", 0) as port:
                ready.send(port)
                await asyncio.Event().wait()

    asyncio.run(main())


def _serve_echo(ready: Connection) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/v1/session", echo)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


@contextmanager
def process(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[int, psutil.Process]]:
    """(port, process) of a server in a process of its own; ends with the context."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    child.start()
    try:
        yield ours.recv(), psutil.Process(child.pid)
    finally:
        child.kill()
        child.join()


@contextmanager
def edgeflock(
    layout: Layout, window: int = 256, settings: Sequence[str] = ()
) -> Iterator[tuple[int, psutil.Process]]:
    with (
        tempfile.TemporaryDirectory() as directory,
        process(_serve_edgeflock, layout, directory, window, settings) as server,
    ):
        yield server


@contextmanager
def echo() -> Iterator[tuple[int, psutil.Process]]:
    with process(_serve_echo) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Measured:
    """What a load cost the server."""

    per_second: float
    cpu_microseconds: float
    """Server CPU (user and system, all threads) per message."""


async def measure(
    server: tuple[int, psutil.Process],
    updates: list[Update],
    devices: int,
    seconds: float,
    *,
    lag: int,
    plain: bool = False,
    path: str = "",
) -> Measured:
    """Push from `devices` connections for `seconds`, each update computed `lag` versions before.

    An update that asks for an answer is from the version that the device holds.
    `plain` sends the frames to an echo server instead. `path` comes before the routes.
    """
    port, process = server
    done, stop_at = 0, 0.0

    async def device(number: int) -> None:
        nonlocal done
        update = updates[number % len(updates)]
        async with _socket(port, path) as socket:
            sequence = version = 0
            if not plain:
                await socket.send_bytes(wire.encode(Hello(PROTOCOL, f"device-{number}", b"", {})))
                welcome = wire.decode((await socket.receive()).data)
                assert isinstance(welcome, Welcome)
                sequence, version = welcome.sequence, welcome.version
            held = base = 0
            if update.pull and not plain:
                await socket.send_bytes(wire.encode(Pull(None)))
                model = wire.decode((await socket.receive()).data)
                assert isinstance(model, Model)
                held, base = chain.follow(held, model), model.version
            gate.release()
            await go.wait()
            while time.perf_counter() < stop_at:
                sequence += 1
                if not update.pull:
                    base = max(0, version - lag)
                frame = wire.encode(replace(update, sequence=sequence, base=base, held=chain.low_bits(held)))
                await socket.send_bytes(frame)
                message = await socket.receive()
                if not plain:
                    answer = wire.decode(message.data)
                    assert isinstance(answer, Receipt), answer
                    version = answer.version
                    if answer.model is not None:
                        held, base = chain.follow(held, answer.model), answer.model.version
                done += 1

    gate, go = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(devices):
            group.create_task(device(number))
        for _ in range(devices):
            await gate.acquire()
        before, began = process.cpu_times(), time.perf_counter()
        stop_at = began + seconds
        go.set()
    elapsed, after = time.perf_counter() - began, process.cpu_times()
    cpu = after.user + after.system - before.user - before.system
    return Measured(done / elapsed, cpu / done * 1e6)


@asynccontextmanager
async def _socket(port: int, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = f"http://127.0.0.1:{port}{path}/v1/session"
    async with aiohttp.ClientSession() as http, http.ws_connect(url, compress=0, max_msg_size=0) as socket:
        yield socket
