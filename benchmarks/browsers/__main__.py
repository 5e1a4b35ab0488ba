"""`python -m benchmarks.browsers`: tabs of a headless Chromium as devices, at a real server.

    fleet    --tabs and --devices train PaperMLP on shares of MNIST to --accuracy. All the while, tabs are
             reloaded, closed or crashed in turn, at random by --seed, and come back. At the end the journal
             has each update once: the numbers of every device's updates are 1 to n, no two of its updates
             have the same bytes, and the update that a tab was sending as it died is there, or "late": its
             base had left coordination.window.
    lasting  One tab trains for --minutes: the memory of its process, of its worker once garbage is collected,
             and what of a core an update takes, there and then on a device in Python.
    bytes    What passes the socket of a tab at its first visit and at a later one, until it trains.

Each prints one JSON object. `edgeflock browsers install` comes first.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil

from benchmarks.browsers.journal import audited, evaluations, rows
from benchmarks.browsers.processes import counting, native, renderer, seconds_of, serving
from benchmarks.browsers.seat import Seat, until
from benchmarks.live import process
from edgeflock.papers.machine import machine
from tests.browser import browser


async def fleet(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    draw, count = random.Random(arguments.seed), arguments.tabs + arguments.devices
    deaths: list[dict[str, Any]] = []
    kinds = {"reload": 0, "close": 0, "crash": 0}
    async with AsyncExitStack() as stack:
        url, token = await stack.enter_async_context(serving(folder))
        running = await stack.enter_async_context(browser(folder / "browser"))
        seats = [Seat(running, url, token, f"?part={n}/{count}", n) for n in range(1, arguments.tabs + 1)]
        for seat in seats:
            await seat.sit()
        for n in range(arguments.tabs + 1, count + 1):
            await stack.enter_async_context(native(folder, url, token, f"native-{n}", f"?part={n}/{count}"))
        began = time.monotonic()
        while not (known := evaluations(folder)) or known[-1][1] < arguments.accuracy or len(deaths) < 10:
            await asyncio.sleep(draw.uniform(0, 2 * arguments.every))
            seat, how = draw.choice(seats), draw.choice(list(kinds))
            await seat.die(how)
            kinds[how] += 1
            if (death := await seat.sit()) is not None:
                deaths.append(death)
            print(f"{time.monotonic() - began:.0f} s: {how}, {evaluations(folder)[-1:]}", file=sys.stderr)
        seconds = time.monotonic() - began
        for seat in seats:  # each has sent what it had under way
            assert seat.tab is not None
            await until(seat.tab, "reported.updates > 0 || reported.ended")
        last = [await seat.reported() for seat in seats]
        receipts = sum(seat.receipts + one["updates"] for seat, one in zip(seats, last, strict=True))
        for seat in seats:
            assert seat.tab is not None
            await seat.tab.run("device.stop()")
        await asyncio.sleep(3)
    command = (sys.executable, "-m", "edgeflock", "journal", "verify", str(folder / "run"))
    async with process(*command, log=folder / "verify.log") as verifying:
        verified = (await verifying.communicate())[0].decode().strip()
    return {
        "accuracy": max(accuracy for _, accuracy in evaluations(folder)),
        "seconds": round(seconds),
        "deaths": kinds,
        **audited(folder, deaths, receipts),
        "ended": sorted({one["ended"] for one in last if one["ended"]}),
        "step_ms_of_tabs": milliseconds([second for one in last for second in one["seconds"]]),
        "journal_verify": verified.splitlines()[-1:],
    }


def milliseconds(seconds: list[float]) -> dict[str, float]:
    return {"least": round(1000 * min(seconds), 2), "median": round(1000 * statistics.median(seconds), 2)}


async def lasting(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    samples: list[dict[str, Any]] = []
    part = "?part=1/14"
    async with AsyncExitStack() as stack:
        url, token = await stack.enter_async_context(serving(folder))
        running = await stack.enter_async_context(browser(folder / "browser"))
        seat = Seat(running, url, token, part, 1)
        await seat.sit()
        assert (tab := seat.tab) is not None
        await until(tab, f"reported.updates > {WARM}")
        await tab.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        await tab.call("Network.disable")  # the browser would remember what it has loaded
        page = renderer(running.pid)
        ends, before = time.monotonic() + 60 * arguments.minutes, (await seat.reported(), seconds_of(page))
        while time.monotonic() < ends:
            await asyncio.sleep(20)
            await tab.call("HeapProfiler.collectGarbage", session=tab.workers[-1])
            heap = await tab.call("Runtime.getHeapUsage", session=tab.workers[-1])
            octets = page.memory_full_info().uss, heap["usedSize"], heap["backingStorageSize"]
            samples.append(dict(zip(KINDS, (round(one / 2**20, 1) for one in octets), strict=True)))
            print((await seat.reported())["updates"], samples[-1], file=sys.stderr)
        reported = await seat.reported()
        cost = (seconds_of(page) - before[1]) / (reported["updates"] - before[0]["updates"])
        await seat.die("close")
        async with native(folder, url, token, "native", part) as device:
            of_native = await cost_of_native(folder, device)
    third = len(samples) // 3
    return {
        "updates": reported["updates"],
        "mib_in_the_first_and_last_third": {
            kind: [round(statistics.mean(one[kind] for one in some), 1) for some in thirds]
            for kind in KINDS
            if (thirds := (samples[:third], samples[-third:]))
        },
        "step_ms": milliseconds(reported["seconds"]),
        "core_ms_an_update": {"tab": round(1000 * cost, 2), "native": round(1000 * of_native, 2)},
    }


KINDS = ("process", "heap_of_worker", "arrays_of_worker")

WARM = 200
"""Updates before anything is measured."""


async def cost_of_native(folder: Path, device: Process) -> float:
    """Seconds of a core that each of a thousand updates of a device in Python takes."""
    process, measured = psutil.Process(device.pid), 1000
    query = "SELECT count(*) FROM updates JOIN devices ON devices.id = device WHERE name = 'native'"

    async def reached(count: int) -> tuple[int, float]:
        while (updates := rows(folder, query)[0][0]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        return updates, seconds_of(process)

    first, last = await reached(WARM), await reached(WARM + measured)
    return (last[1] - first[1]) / (last[0] - first[0])


async def visits(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    found = {}
    async with AsyncExitStack() as stack:
        url, token = await stack.enter_async_context(serving(folder))
        port, counts = await stack.enter_async_context(counting(int(url.rpartition(":")[2])))
        running = await stack.enter_async_context(browser(folder / "browser"))
        seat = Seat(running, f"http://127.0.0.1:{port}", token, "?part=1/14", 1)
        for visit in ("first", "second"):
            counts.update(up=0, down=0)
            await seat.sit()
            assert seat.tab is not None
            await until(seat.tab, "reported.updates > 0", 0.05)
            at_first, updates = dict(counts), (await seat.reported())["updates"]
            await until(seat.tab, "reported.updates >= 300")
            done = (await seat.reported())["updates"] - updates
            each = {way: round((counts[way] - at_first[way]) / done) for way in counts}
            found[visit] = {"until_it_trains": at_first, "each_update": each}
            await seat.die("close")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.browsers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("fleet", "lasting", "bytes"))
    parser.add_argument("--tabs", type=int, default=10)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--accuracy", type=float, default=0.97)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two deaths, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=16.0)
    arguments = parser.parse_args()
    act = {"fleet": fleet, "lasting": lasting, "bytes": visits}[arguments.what]
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(act(Path(folder), arguments))
    load_then = [round(one, 1) for one in os.getloadavg()]
    print(json.dumps({"machine": machine(), "load": load_then, **found}, indent=1))


if __name__ == "__main__":
    main()
