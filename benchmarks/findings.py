"""Whether the server names the device that is wrong, and nobody else.

    python -m benchmarks.findings [--seeds 2] [--first 0] [--only WORDS] [--out FILE]
    python -m benchmarks.findings --cost

A server and seven devices without torch train the digits over loopback, each a process, for two minutes from
the first update, or until the wrong one is named. One device shifts its labels, or all are honest; the seed
says who. causes.py has emulated fleets with many more causes. With --cost: what a look at an update takes,
over what a push costs. docs/findings.md has the results.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np

from benchmarks import load
from benchmarks.updates import random_update, record_update
from edgeflock.devices.emulation import config
from edgeflock.devices.emulation.fleet import PreparedFleet, prepare
from edgeflock.papers.machine import machine
from edgeflock.quickstart.run import end, start, url_of
from edgeflock.server.descent import Parameters, Regime
from edgeflock.server.engine.admission import admit
from edgeflock.server.findings import AgreementTracker
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.protocol.frames import Finding
from edgeflock.shared.protocol.messages import Update

DEVICES, SECONDS = 7, 120

WAYS: dict[str, tuple[int, bool]] = {
    "labels shifted by one": (0, True),
    "honest, one label each": (1, False),
}
"""What happens -> (labels a device has, 0: all; whether one of them shifts them)."""


def file_of(labels: int) -> config.FleetFile:
    return config.parse(
        "",
        "benchmarks.findings",
        settings={
            "model": {"module": "edgeflock.client.zoo:DigitsCNN", "data": "digits:"},
            "fleet": {
                "devices": DEVICES,
                "data": "digits:",
                "labels": labels,
                "seconds": SECONDS,
            },
            "devices": {"pi": {"profile": "raspberry-pi-4"}},
        },
    )


def dealt(prepared: PreparedFleet, is_wrong: bool, seed: int) -> tuple[int, list[Dataset]]:
    """(which device is wrong if one is, the data of all)."""
    chosen, shares = int(np.random.default_rng([seed, 99]).integers(DEVICES)), list(prepared.shares)
    if is_wrong:
        data = shares[chosen]
        shares[chosen] = Dataset(data.x, (data.y + 1) % 10, description=data.description)
    return chosen, shares


async def run(prepared: PreparedFleet, is_wrong: bool, seed: int) -> tuple[str, list[Finding]]:
    """(the device that is wrong, what was found)."""
    chosen, shares = dealt(prepared, is_wrong, seed)
    found: dict[tuple[str, str | None], Finding] = {}
    processes: list[asyncio.subprocess.Process] = []
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        settings = [
            f"server.directory={directory / 'run'}",
            f"model.seed={seed}",
            *("server.port=0", "server.host=127.0.0.1", "server.open=true", "end.updates=1000000"),
            *("model.module=edgeflock.client.zoo:DigitsCNN", "model.data=digits:"),
        ]
        try:
            server = await start("server", settings, "--json", log=directory / "server.log")
            processes.append(server)
            url = await url_of(server, directory)
            for number, share in enumerate(shares):
                path = directory / f"{number}.npz"
                np.savez(path, x_train=share.x, y_train=share.y, x_test=share.x[:1], y_test=share.y[:1])
                own = [f"client.server={url}", f"client.data=npz:{path}", f"client.name=pi-{number}"]
                own += [f"client.seed={seed}", "client.backend=onnx", "client.low_priority=false"]
                processes.append(await start("client", own, log=directory / f"{number}.log"))
            async with aiohttp.ClientSession() as http:
                began = 0.0
                while not began or time.time() < began + SECONDS:
                    await asyncio.sleep(1)
                    async with http.get(f"{url}/v1/status") as answer:
                        status = await answer.json()
                    began = began or (time.time() if status["version"] else 0.0)
                    for reported in status["findings"] if began else ():
                        one = Finding(**reported)
                        found.setdefault((one.kind, one.device), one._replace(since=one.since - began))
                    if is_wrong and ("disagrees", f"pi-{chosen}") in found:
                        break
                took, updates = time.time() - began, status["version"]
                print(f"seed {seed}: {took:.0f} s, {updates} updates, {sorted(found, key=str)}", flush=True)
        finally:
            await end(processes)
    return f"pi-{chosen}", [one for one in found.values() if one.kind in ("disagrees", "norm")]


def cost() -> dict[str, object]:
    """Measure the cost of findings in microseconds, as medians.

    Interleaved are a push in memory (decode, admit, weigh, apply), an observed update and a skipped one. For
    the whole server, seven devices push as fast as they can.
    """
    layout, random = load.PAPER_CNN, np.random.default_rng(0)
    kinds: dict[str, Callable[[], Update]] = {
        "record": lambda: record_update(layout, random),
        "c=.01": lambda: random_update(layout, 0.01, "codebook4", random),
    }
    rows: dict[str, object] = {"machine": machine()}
    for kind, make in kinds.items():
        updates = [make() for _ in range(64)]
        regime, theta = Regime("adacomp", 1e-6, 256), np.zeros(layout.size, np.float32)
        parameters, agreement = Parameters(0, theta, regime=regime, start=0), AgreementTracker(layout.size)
        taken: list[tuple[float, float, float]] = []
        for second in range(4000):
            version = parameters.version
            update = replace(updates[version % 64], base=max(0, version - 200))
            times = [time.perf_counter()]
            step = admit(update, layout, oldest=0, version=version, samples=1 << 16, expansion_bytes=1 << 28)
            assert parameters.fits(step, 60_000)
            step = replace(step, time=float(second))
            times.append(time.perf_counter())
            for _ in range(2):  # the second one comes too soon, and is passed over
                agreement.observe(version % DEVICES, 1.0, step)
                times.append(time.perf_counter())
            parameters.apply(step)
            times.append(time.perf_counter())
            first, look, over, last = np.diff(times)
            taken.append((first + last, look, over))
        push, look, over = (statistics.median(column) * 1e6 for column in zip(*taken, strict=True))
        with load.edgeflock(layout) as server:
            whole = [
                asyncio.run(load.measure(server, updates[:DEVICES], DEVICES, 2.0, lag=100)).cpu_microseconds
                for _ in range(5)
            ]
        rows[kind] = {
            "push in memory": round(push, 1),
            "push through the server": round(statistics.median(whole), 1),
            "look": round(look, 2),
            "pass over": round(over, 2),
            "look / push, %": round(100 * look / statistics.median(whole), 2),
            "pass over / push, %": round(100 * over / statistics.median(whole), 2),
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="ways that hold this word")
    parser.add_argument("--cost", action="store_true", help="what it costs a push")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.cost:
        print(json.dumps(cost(), indent=1))
        return
    results = []
    for way, (labels, is_wrong) in WAYS.items():
        if asked.only not in way:
            continue
        prepared = prepare(file_of(labels))
        for seed in range(asked.first, asked.first + asked.seeds):
            device, found = asyncio.run(run(prepared, is_wrong, seed))
            named = sorted({one.device or "" for one in found})
            results.append({"way": way, "seed": seed, "wrong": device if is_wrong else None, "named": named})
            print(json.dumps(results[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
