"""What gateways take off a leader, and what they take themselves.

    python -m benchmarks.gateways cost [--seconds 8] [--rounds 3] [--gateways 1]
    python -m benchmarks.gateways memory [--devices 2000]
    python -m benchmarks.gateways reach [--devices 10000] [--gateways 2] [--period 10] [--seconds 120]
    python -m benchmarks.gateways curve [--counts 0,1,2,4] [--rates 100,300,1000,2000,4000] [-o docs/results]

cost: processor time of the leader a push, with devices that come directly and through a gateway, by turns in
one run. memory: of a gateway and of a server for each device that is connected and silent, plain and with
TLS. reach: so many connected devices (benchmarks/crowd.py) for so long, directly with --gateways 0. curve:
reach with more and more devices, until they are too many, for each number of gateways, 0 those that come
directly; writes gateways.json, .svg and .png. Others print JSON.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import reach_curve
from benchmarks.load import PAPER_CNN, edgeflock, measure
from benchmarks.reach import LOSSY, Crowd, gateway, leading, reach
from benchmarks.updates import random_update, record_update
from edgeflock.papers.machine import machine
from edgeflock.shared.protocol.messages import Update


@dataclass(frozen=True, slots=True)
class Way:
    """What devices push, and what they are answered."""

    name: str
    update: Update
    settings: Sequence[str]
    lag: int = 100


def ways() -> list[Way]:
    random = np.random.default_rng(0)
    return [
        Way("the record, lossy answers", record_update(PAPER_CNN, random), LOSSY),
        Way("the record, no answers", replace(record_update(PAPER_CNN, random), pull=False), ()),
        Way("c = 0.01 in four bits, no answers", random_update(PAPER_CNN, 0.01, "codebook4", random), ()),
    ]


def cost(seconds: float, rounds: int, gateways: int, devices: int) -> dict[str, Any]:
    """The leader's processor time a push, and the gateways'."""
    figures = {}
    for way in ways():
        direct, through, beyond, rates = [], [], [], []
        with ExitStack() as stack:
            leader = stack.enter_context(edgeflock(PAPER_CNN, 1024, way.settings))
            lines = [stack.enter_context(gateway(leader[0])) for _ in range(gateways)]
            for _ in range(rounds):
                at = measure(leader, [way.update], devices, seconds, lag=way.lag)
                direct.append(asyncio.run(at))
                before = [sum(one.cpu_times()[:2]) for _, one in lines]
                at = measure((lines[0][0], leader[1]), [way.update], devices, seconds, lag=way.lag)
                found = asyncio.run(at)
                through.append(found)
                used = sum(sum(one.cpu_times()[:2]) for _, one in lines) - sum(before)
                beyond.append(used / (found.per_second * seconds) * 1e6)
                rates.append(through[-1].cpu_microseconds / direct[-1].cpu_microseconds)
        figures[way.name] = {
            "direct_us": round(median(one.cpu_microseconds for one in direct)),
            "direct_per_second": round(median(one.per_second for one in direct)),
            "leader_us": round(median(one.cpu_microseconds for one in through)),
            "gateway_us": round(median(beyond)),
            "through_per_second": round(median(one.per_second for one in through)),
            "ratio": round(median(rates), 3),
            "ratios": [round(rate, 3) for rate in rates],
        }
    return figures


def memory(devices: int) -> dict[str, Any]:
    """KiB of resident memory for each device that is connected and silent, after the first fifth of them."""
    figures = {}
    for tls in (False, True):
        flags = ["--idle", *(["--tls"] if tls else [])]
        for where in ("gateway", "server"):
            with ExitStack() as stack:
                leader = stack.enter_context(leading(tls=tls and where == "server"))
                port, one = leader
                if where == "gateway":
                    port, one = stack.enter_context(gateway(leader[0], tls=tls))
                first = Crowd([port], devices // 5, 1, 3600, *flags)
                stack.callback(first.end)
                first.connected()
                time.sleep(2)
                before = one.memory_info().rss
                rest = Crowd([port], devices, 1, 3600, *flags, start=devices)
                stack.callback(rest.end)
                rest.connected()
                time.sleep(2)
                each = round((one.memory_info().rss - before) / devices / 1024, 1)
                figures[f"{where}_{'tls' if tls else 'plain'}_kib"] = each
                print(figures, file=sys.stderr, flush=True)
    return figures


def curve(asked: argparse.Namespace, out: Path) -> str:
    """Measures, writes and draws it. The table."""
    counts, rates = asked.counts.split(","), asked.rates.split(",")
    points = list(
        reach_curve.measured(
            [int(count) for count in counts], [float(rate) for rate in rates], asked.period, asked.seconds,
            tls=asked.tls, pull=asked.pull,
        )
    )  # fmt: skip
    beside = asked.beside or f"load average {os.getloadavg()[2]:.1f}, this included"
    kept = reach_curve.record(points, f"python -m benchmarks.gateways {' '.join(sys.argv[1:])}", beside)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gateways.json").write_text(json.dumps(kept, indent=1) + "\n")
    caption = (
        f"{asked.seconds:g} s a point, {kept['date']}, {machine()}; devices and servers share it; {beside}"
    )
    reach_curve.draw(points, out / "gateways", caption)
    return reach_curve.table(points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("cost", "memory", "reach", "curve"))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--period", type=float, default=10)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--pull", action="store_true")
    parser.add_argument("--counts", default="0,1,2,4", help="of gateways, for the curve")
    parser.add_argument("--rates", default="100,300,1000,2000,4000", help="updates a second, for the curve")
    parser.add_argument("--beside", default="", help="what else the machine does, for the curve's caption")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/results"), help="of the curve")
    asked = parser.parse_args()
    if asked.what == "curve":
        print(curve(asked, asked.out))
        return
    if asked.what == "cost":
        figures = cost(asked.seconds, asked.rounds, asked.gateways, asked.devices)
    elif asked.what == "memory":
        figures = memory(asked.devices)
    else:
        figures = asdict(
            reach(asked.devices, asked.gateways, asked.period, asked.seconds, tls=asked.tls, pull=asked.pull)
        )
    print(json.dumps({"what": asked.what, **figures, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
