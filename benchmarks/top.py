"""`python -m benchmarks.top`: what the monitor costs with thousands of devices, in a real pseudo-terminal.

A server in a process of its own tells of all its devices twice a second, each with a new loss, and
`edgeflock top` shows them in a terminal of 140 x 44. Measured over --seconds: its share of a core and the
bytes that went to the terminal; then how long each of 20 keys takes until the screen has answered it.
"""

import argparse
import asyncio
import fcntl
import os
import pty
import random
import re
import select
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection

import psutil
from aiohttp import web

from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import BINS, Delta, DeviceRow, Overview, RunFacts, Snapshot

COLUMNS, LINES = 140, 44


def row(n: int, tick: int, rng: random.Random) -> DeviceRow:
    return DeviceRow(
        *(n, f"pi-{n}", "training", "pi4", "onnx", 8.0, 10, n % 40, 0, 0, 0, None, None, time.time()),
        *(int(rng.random() * 5000), rng.random() * 2, tick, 0, tick * 655, tick * 9120, tick * 10, tick),
        cpu=rng.random() * 100,
        ram=212.0,
        temperature=40 + rng.random() * 40,
        battery=None,
        undervoltage=False,
        shards=None,
        repeated=None,
        paused_because=None,
        smoothed_loss=rng.random(),
        updates_per_s=2.0,
        why_left=None,
        memory=3792.0,
        clipped=None,
        dropped=None,
        standing=None,
        labels=None,
        edgeflock=None,
    )


def overview(devices: int, tick: int) -> Overview:
    version = devices * tick
    return Overview(
        version=version,
        updates_per_s=2.0 * devices,
        ingress=version * 655,
        egress=version * 9120,
        ingress_rate=2.0 * devices * 655,
        egress_rate=2.0 * devices * 9120,
        dense_bytes=version * 153_128,
        reduction=233.0,
        staleness=[version // BINS] * BINS,
        devices=devices,
        up=devices,
        cnc=1.0,
        loss=0.5 + 0.1 * random.random(),
        evaluation_failed=False,
        state="training",
        shared_samples=0,
        tasks=None,
    )


def serve(devices: int, port: Connection) -> None:
    """Feeds: a frame each interval, with every device in it."""
    rng = random.Random(1)

    async def watch(request: web.Request) -> web.StreamResponse:
        interval = float(request.query["interval"])
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        run = RunFacts("5f3c0ad1e2b49687", "edgeflock.client.zoo:DigitsCNN", 38_282, 38_282, 0, {"end": {}})
        rows = tuple(row(n, 1, rng) for n in range(1, devices + 1))
        await socket.send_bytes(
            feed.encode(Snapshot(time.time(), run, "viewer", rows, overview(devices, 1), (), ()))
        )
        tick = 1
        while not socket.closed:
            await asyncio.sleep(interval)
            tick += 1
            rows = tuple(row(n, tick, rng) for n in range(1, devices + 1))
            delta = Delta(time.time(), overview(devices, tick), rows, (), (), 0)
            with suppress(ConnectionError):
                await socket.send_bytes(feed.encode(delta))
        return socket

    async def past(request: web.Request) -> web.Response:
        return web.json_response([])

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/v1/feed", watch)
        app.router.add_get("/v1/history", past)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


class Terminal:
    """A pseudo-terminal with a program in it, read by a thread as a terminal would."""

    def __init__(self, command: list[str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.octets, self.last = 0, 0.0
        self._tail = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                if not select.select([self._master], [], [], 1)[0]:
                    continue
                octets = os.read(self._master, 1 << 16)
            except OSError:
                return
            self.octets += len(octets)
            self._tail = (self._tail + octets)[-(1 << 16) :]

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def waits_for(self, pattern: bytes, seconds: float = 60) -> None:
        """Returns once the program has written it."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self._tail):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{pattern!r} was not written; last was {self._tail[-2000:]!r}")
            time.sleep(0.002)

    def forget(self) -> None:
        self._tail = b""


def measure(devices: int, page: bytes, seconds: float, interval: float) -> dict[str, float]:
    """CPU share, bytes a second and latencies of one setting."""
    ours, theirs = Pipe()
    server = Process(target=serve, args=(devices, theirs), daemon=True)
    server.start()
    port = ours.recv()
    command = [sys.executable, "-m", "edgeflock", "top", f"http://127.0.0.1:{port}"]
    terminal = Terminal([*command, f"--interval={interval}"])
    try:
        terminal.waits_for(b"live")
        terminal.press(page)
        time.sleep(3)
        process = psutil.Process(terminal.process.pid)
        before, octets, start = process.cpu_times(), terminal.octets, time.monotonic()
        time.sleep(seconds)
        after, elapsed = process.cpu_times(), time.monotonic() - start
        cpu = (after.user + after.system - before.user - before.system) / elapsed
        rate = (terminal.octets - octets) / elapsed
        delays = []
        for n in range(20):
            time.sleep(0.37)
            terminal.forget()
            pressed = time.monotonic()
            terminal.press(b"3" if n % 2 == 0 else page[:1])
            terminal.waits_for(b"nothing has happened yet" if n % 2 == 0 else b"device|Accuracy")
            delays.append(time.monotonic() - pressed)
        return {
            "cpu": cpu,
            "bytes": rate,
            "median": statistics.median(delays),
            "worst": max(delays),
            "rss": process.memory_info().rss / 2**20,
        }
    finally:
        terminal.process.terminate()
        terminal.process.wait(10)
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, nargs="+", default=[50, 5000])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--interval", type=float, default=0.5)
    asked = parser.parse_args()
    print("| devices | page | CPU share | key to screen, median | worst | to the terminal | memory |")
    print("|--:|---|--:|--:|--:|--:|--:|")
    for devices in asked.devices:
        for name, keys in (("overview", b"1"), ("table by name", b"2"), ("table by loss", b"2sss")):
            found = measure(devices, keys, asked.seconds, asked.interval)
            delays = f"{found['median'] * 1000:.0f} ms | {found['worst'] * 1000:.0f} ms"
            costs = f"{found['bytes'] / 1000:.1f} kB/s | {found['rss']:.0f} MiB"
            print(f"| {devices:,} | {name} | {found['cpu']:.0%} | {delays} | {costs} |", flush=True)


if __name__ == "__main__":
    main()
