"""A gateway and a leader that hang (SIGSTOP) and go on (SIGCONT): how long their devices wait.

    python -m benchmarks.hanging [--devices 12] [--seconds 30] [--gateways 2]

A leader, gateways and devices that push all the time, each in a process of its own. The first gateway hangs,
then the leader. It prints JSON: the longest wait of any device for a receipt, and after how many seconds each
gateway has its share again.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.faults.device import Notes
from tests.ports import lasting

Process = asyncio.subprocess.Process


@asynccontextmanager
async def process(*arguments: object, log: Path, says: bool = True) -> AsyncIterator[Process]:
    """`python ARGUMENTS`, once it has said a line; it ends with the context."""
    with log.open("ab") as errors:
        one = await asyncio.create_subprocess_exec(
            sys.executable, *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        if says:
            assert one.stdout is not None
            assert await one.stdout.readline(), f"it has ended: {log}"
        yield one
    finally:
        one.kill()
        await one.wait()


@asynccontextmanager
async def leader(place: Path, port: int) -> AsyncIterator[Process]:
    arguments = ("-m", "benchmarks.faults.server", place / "run", "127.0.0.1", port)
    async with process(*arguments, log=place / "leader.log") as one:
        yield one


@asynccontextmanager
async def gateway(place: Path, port: int, upstream: int) -> AsyncIterator[Process]:
    options = ("--upstream", f"http://127.0.0.1:{upstream}", "--port", port, "--json")
    arguments = ("-m", "edgeflock", "gateway", *options)
    async with process(*arguments, log=place / f"gateway-{port}.log") as one:
        await ready(port)
        yield one


async def ready(port: int) -> None:
    """Return once a server says that it takes devices."""
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def shares(port: int) -> Counter[str | None]:
    """Gateway -> how many devices come through it, as the leader at `port` has it."""
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/v1/status") as answer:
        devices = (await answer.json())["devices"]
    return Counter(device["gateway"] for device in devices if device["connected"])


def longest(notes: Notes, since: float, until: float) -> float:
    """Seconds that any device waited for a receipt between the two."""
    times: dict[str, list[float]] = {}
    for one in notes.all():
        times.setdefault(one.name, []).append(one.at)
    most = 0.0
    for each in times.values():
        between = [since, *(at for at in each if since < at < until), until]
        most = max(most, *(b - a for a, b in zip(between, between[1:], strict=False)))
    return most


async def measure(place: Path, devices: int, seconds: float, gateways: int) -> dict[str, object]:
    (place / "receipts").mkdir()
    notes, at = Notes(place / "receipts"), lasting()
    async with AsyncExitStack() as opened:
        head = await opened.enter_async_context(leader(place, at))
        ports = [lasting() for _ in range(gateways)]
        through = [await opened.enter_async_context(gateway(place, port, at)) for port in ports]
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        names = [f"device-{number}" for number in range(devices)]
        pushing = process(
            *("-m", "benchmarks.faults.device", urls, place / "receipts", 0, 0.2, *names),
            log=place / "devices.log",
            says=False,
        )
        pushes = await opened.enter_async_context(pushing)
        while len(notes.all()) < 20 * devices:
            assert pushes.returncode is None, "the devices have ended"
            await asyncio.sleep(0.1)
        before = await shares(at)

        began = time.monotonic()
        through[0].send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        through[0].send_signal(signal.SIGCONT)
        again = time.monotonic()
        while await shares(at) != before:
            assert pushes.returncode is None, "the devices have ended"
            await asyncio.sleep(0.2)
        back = time.monotonic() - again
        found: dict[str, object] = {
            "shares": sorted(before.values()),
            "gateway hangs": round(longest(notes, began, again), 1),
            "shares again after": round(back, 1),
            "longest wait of a return": round(longest(notes, again, time.monotonic()), 1),
        }
        began = time.monotonic()
        head.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        head.send_signal(signal.SIGCONT)
        again, count = time.monotonic(), len(notes.all())
        while len({one.name for one in notes.all()[count:]}) < devices:
            assert pushes.returncode is None, "the devices have ended"
            await asyncio.sleep(0.1)
        return {**found, "leader hangs, after it goes on": round(longest(notes, again, time.monotonic()), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--gateways", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(measure(Path(place), given.devices, given.seconds, given.gateways))))


if __name__ == "__main__":
    main()
