"""Whether the server names the device that is wrong, and nobody else.

    python -m benchmarks.findings [--seeds 10] [--first 0] [--only WORDS] [--real] [--out FILE]
    python -m benchmarks.findings --cost

Emulated fleets of seven Raspberry Pi 4 train the digits as a quickstart does, for up to two minutes of
virtual time or 2,500 updates, or until the wrong one is named. In each of some ways one device is wrong, or
none, and which devices are named is counted over the seeds; seeds also say who is wrong. With --real they are
processes over loopback, for two minutes from the first update. With --cost: what is looked at in an update,
over what a push costs. docs/findings.md has the results.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import numpy as np

from benchmarks import load
from benchmarks.updates import random_update, record_update
from edgeflock.devices.emulation import config
from edgeflock.devices.emulation.fleet import Prepared, prepare, run_fleet
from edgeflock.devices.papers.machine import machine
from edgeflock.devices.quickstart.processes import end, start, url_of
from edgeflock.server.descent import Parameters, Regime
from edgeflock.server.engine.admission import admit
from edgeflock.server.findings import Agreement
from edgeflock.server.operations.listeners import Listening
from edgeflock.shared.data.datasets import Dataset, joined
from edgeflock.shared.protocol.frames import Finding
from edgeflock.shared.protocol.messages import Update

DEVICES, UPDATES, SECONDS = 7, 2500, 120


class Named(Exception):
    """Somebody has the answer."""


Wrong = Callable[[Dataset, np.random.Generator], Dataset]


def _labelled(of: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Wrong:
    return lambda data, random: Dataset(data.x, of(data.y, random), described=data.described)


def _of_one_label(data: Dataset, random: np.random.Generator) -> Dataset:
    where = np.flatnonzero(data.y == random.integers(10))
    return Dataset(data.x[where], data.y[where], described=data.described)


WAYS: dict[str, tuple[int, Wrong | None, bool]] = {
    "honest, all labels each": (0, None, False),
    "honest, one label each": (1, None, False),
    "honest, two labels each": (2, None, False),
    "honest, one of seven has one label": (0, _of_one_label, False),
    "labels shifted by one": (0, _labelled(lambda y, random: (y + 1) % 10), True),
    "labels mirrored": (0, _labelled(lambda y, random: 9 - y), True),
    "labels drawn at random": (0, _labelled(lambda y, random: random.permutation(y)), True),
    "two labels each, one shifts them": (2, _labelled(lambda y, random: (y + 1) % 10), True),
    "one label each, one shifts it": (1, _labelled(lambda y, random: (y + 1) % 10), True),
    "inputs times 1,000": (0, lambda data, _: Dataset(data.x * 1e3, data.y, described=data.described), True),
}
"""What happens -> (labels a device has, 0: all; what one device makes of its data, whether that is wrong)."""


def file_of(labels: int) -> config.FleetFile:
    return config.parse(
        "",
        "benchmarks.findings",
        given={
            "run": {"updates": UPDATES},
            "model": {"module": "edgeflock.client.zoo:DigitsCNN", "data": "digits:"},
            "fleet": {
                "devices": DEVICES,
                "data": "digits:",
                "labels": labels,
                "seconds": SECONDS,
                "evaluate_every": UPDATES,
            },
            "devices": {"pi": {"profile": "raspberry-pi-4"}},
        },
    )


def dealt(prepared: Prepared, wrong: Wrong | None, seed: int) -> tuple[int, list[Dataset]]:
    """(which device is wrong if one is, the data of all)."""
    random = np.random.default_rng([seed, 99])
    chosen, shares = int(random.integers(DEVICES)), list(prepared.shares)
    if wrong is not None:
        # Who has one label only has it of everybody's: enough for batches of it.
        data = joined(prepared.shares) if wrong is _of_one_label else shares[chosen]
        shares[chosen] = wrong(data, random)
    return chosen, shares


def run(prepared: Prepared, wrong: Wrong | None, seed: int) -> tuple[str, list[Finding]]:
    """(the device that is wrong, what was found)."""
    chosen, shares = dealt(prepared, wrong, seed)
    prepared = replace(prepared, shares=shares)
    found: list[Finding] = []

    def look(finding: Finding) -> None:
        found.append(finding)
        if finding.device == f"pi-{chosen}":
            raise Named

    with TemporaryDirectory() as folder, suppress(Named):
        run_fleet(prepared, seed, Path(folder) / "run", Listening(on_finding=look))
    return f"pi-{chosen}", found


async def run_real(prepared: Prepared, wrong: Wrong | None, seed: int) -> tuple[str, list[Finding]]:
    """As `run`, with a server and seven devices without torch, each a process."""
    chosen, shares = dealt(prepared, wrong, seed)
    found: dict[tuple[str, str | None], Finding] = {}
    processes: list[asyncio.subprocess.Process] = []
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        settings = [
            f"run.directory={directory / 'run'}",
            f"run.seed={seed}",
            *("run.port=0", "run.host=127.0.0.1", "run.open=true", "run.updates=1000000"),
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
                own += [f"client.seed={seed}", "client.backend=onnx", "client.gentle=false"]
                processes.append(await start("client", own, log=directory / f"{number}.log"))
            async with aiohttp.ClientSession() as http:
                began = 0.0
                while not began or time.time() < began + SECONDS:
                    await asyncio.sleep(1)
                    async with http.get(f"{url}/v1/status") as answer:
                        status = await answer.json()
                    began = began or (time.time() if status["version"] else 0.0)
                    for told in status["findings"] if began else ():
                        one = Finding(**told)
                        found.setdefault((one.kind, one.device), one._replace(since=one.since - began))
                    if wrong is not None and (("disagrees", f"pi-{chosen}") in found):
                        break
                took, updates = time.time() - began, status["version"]
                print(f"seed {seed}: {took:.0f} s, {updates} updates, {sorted(found, key=str)}", flush=True)
        finally:
            await end(processes)
    return f"pi-{chosen}", [one for one in found.values() if one.kind in ("disagrees", "norm")]


def cost() -> dict[str, object]:
    """Microseconds, medians: interleaved a push in memory (decode, admit, weigh, apply) with what looking at
    it and passing it over take; and of the whole server a push of seven devices, as fast as they can.
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
        parameters, agreement = Parameters(0, theta, regime=regime, start=0), Agreement(layout.size)
        taken: list[tuple[float, float, float]] = []
        for second in range(4000):
            version = parameters.version
            update = replace(updates[version % 64], base=max(0, version - 200))
            times = [time.perf_counter()]
            step = admit(update, layout, oldest=0, version=version, samples=1 << 16, expansion_bytes=1 << 28)
            assert parameters.bears(step, 60_000)
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
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="ways that hold this word")
    parser.add_argument("--real", action="store_true", help="processes in the place of emulated devices")
    parser.add_argument("--cost", action="store_true", help="what it costs a push")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.cost:
        print(json.dumps(cost(), indent=1))
        return
    results = []
    for way, (labels, wrong, is_wrong) in WAYS.items():
        if asked.only not in way:
            continue
        prepared, began = prepare(file_of(labels)), time.process_time()
        named, others, none, when = 0, 0, 0, []
        for seed in range(asked.first, asked.first + asked.seeds):
            device, found = (
                asyncio.run(run_real(prepared, wrong, seed)) if asked.real else run(prepared, wrong, seed)
            )
            first = {one.device: one.since for one in reversed(found)}
            named += is_wrong and device in first
            others += bool(first.keys() - ({device} if is_wrong else set()))
            none += not first
            if is_wrong and device in first:
                when.append(first[device])
        results.append(
            {
                "way": way,
                "seeds": asked.seeds,
                "the right one": named if is_wrong else None,
                "another": others,
                "nobody": none,
                "median s": round(float(np.median(when)), 1) if when else None,
                "last s": round(max(when), 1) if when else None,
                "cpu s a seed": round((time.process_time() - began) / asked.seeds, 1),
            }
        )
        print(json.dumps(results[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
