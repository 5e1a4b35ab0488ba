"""What gateways take off a leader, and what they take themselves.

    python -m benchmarks.gateways cost [--seconds 8] [--rounds 3] [--gateways 1]
    python -m benchmarks.gateways memory [--devices 2000]
    python -m benchmarks.gateways reach [--devices 10000] [--gateways 2] [--period 10] [--seconds 120]

cost: processor time of the leader a push, with devices that come directly and through a gateway, by turns in
one run. memory: of a gateway and of a server for each device that is connected and silent, plain and with
TLS. reach: so many connected devices (benchmarks/crowd.py) for so long. Prints JSON.
"""

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.audit import initial_theta
from benchmarks.load import PAPER_CNN, edgeflock, measure, process
from benchmarks.plain import EXACT
from benchmarks.updates import LAYOUT, random_update, record_update
from edgeflock.devices.papers.machine import machine
from edgeflock.server.app import create_app, listening
from edgeflock.server.gateway import Gateway, Place
from edgeflock.server.hosting import HostedRun
from edgeflock.server.identity import own_certificate, server_tls
from edgeflock.server.ledger import claimed
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.settings.config import parse

Started = tuple[int, psutil.Process]

LOSSY = ("downlink.mode=lossy",)


def _serve_gateway(ready: Connection, leader: int, directory: str, tls: bool) -> None:
    async def main() -> None:
        place = Place(port=0)
        if tls:
            own = own_certificate(Path(directory), "127.0.0.1")
            place = Place(port=0, certificate=own.certificate, key=own.key)
        one = Gateway(f"http://127.0.0.1:{leader}", "", "benchmark", place)
        async with one.serving() as port:
            await one.until(one.upstream.ready)
            ready.send(port)
            await one.until(asyncio.Event())

    asyncio.run(main())


def _serve_leader(ready: Connection, directory: str, tls: bool, settings: Sequence[str]) -> None:
    """Of benchmarks.updates.LAYOUT, for a crowd."""
    logging.disable(logging.WARNING)  # thousands that are silent are what is measured

    async def main() -> None:
        config = parse(
            overrides=[
                "run.open=true", "model.data=", *EXACT, "limits.devices=60000", "limits.strangers=60000",
                "limits.hello_seconds=300", "limits.request_seconds=300",
                "coordination.learning_rate=1e-3", "coordination.window=65536", *settings,
            ]
        )  # fmt: skip
        with claimed(Path(directory), "directory", LAYOUT, initial_theta(), config) as claim:
            line = server_tls(own_certificate(Path(directory), "127.0.0.1"))[0] if tls else None
            hosted = HostedRun("benchmark", None, claim.engine, None, [], [])
            async with listening(create_app(config, hosted), "127.0.0.1", 0, line) as port:
                ready.send(port)
                await asyncio.Event().wait()

    asyncio.run(main())


@contextmanager
def gateway(leader: int, *, tls: bool = False) -> Iterator[Started]:
    with tempfile.TemporaryDirectory() as directory:
        with process(_serve_gateway, leader, directory, tls) as started:
            yield started


@contextmanager
def leading(*settings: str, tls: bool = False) -> Iterator[Started]:
    with tempfile.TemporaryDirectory() as directory:
        with process(_serve_leader, directory, tls, settings) as started:
            yield started


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


class Crowd:
    """Processes of benchmarks/crowd.py."""

    def __init__(
        self,
        ports: Sequence[int],
        devices: int,
        period: float,
        seconds: float,
        *flags: str,
        start: int = 0,
        share: int = 5000,
    ) -> None:
        """`devices` of them from the number `start` on, `share` a process at most."""
        self._processes = []
        for first in range(start, start + devices, share):
            count = min(share, start + devices - first)
            command = [sys.executable, "-m", "benchmarks.crowd", str(first), str(count), str(period)]
            command += [str(seconds), ",".join(map(str, ports)), *flags]
            self._processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    def connected(self) -> int:
        """How many are, once all are."""
        return sum(int(self._next(one)["connected"]) for one in self._processes)

    def counts(self) -> list[dict[str, float]] | None:
        """What each counts, a second later; None when they end."""
        lines = [one.stdout.readline() for one in self._processes if one.stdout is not None]
        return [json.loads(line) for line in lines] if all(lines) else None

    def _next(self, one: "subprocess.Popen[str]") -> dict[str, Any]:
        assert one.stdout is not None
        line = one.stdout.readline()
        if not line:
            raise RuntimeError("devices did not connect; they say why on stderr")
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self) -> None:
        for one in self._processes:
            one.kill()
            one.wait()


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


def reach(
    devices: int, gateways: int, period: float, seconds: float, *, tls: bool, pull: bool
) -> dict[str, Any]:
    """Devices connected through gateways, pushing now and then."""
    flags = [*(["--tls"] if tls else []), *(["--pull"] if pull else [])]
    with ExitStack() as stack:
        leader = stack.enter_context(leading(*(LOSSY if pull else ())))
        lines = [stack.enter_context(gateway(leader[0], tls=tls)) for _ in range(gateways)]
        began = time.monotonic()
        crowd = Crowd([port for port, _ in lines], devices, period, seconds, *flags)
        stack.callback(crowd.end)
        connected = crowd.connected()
        print(f"{connected:,} devices are connected", file=sys.stderr, flush=True)
        joined = time.monotonic() - began
        processes = {"leader": leader[1], **{f"gateway {n}": one for n, (_, one) in enumerate(lines, 1)}}
        cpu = {name: sum(one.cpu_times()[:2]) for name, one in processes.items()}
        rss: dict[str, list[int]] = {name: [] for name in processes}
        began, last, seen = time.monotonic(), [], []
        while (counts := crowd.counts()) is not None:
            last = counts
            seen.append(sum(one["receipts"] for one in counts))
            print(seen[-1], file=sys.stderr, flush=True)
            if len(seen) % 10 == 1:
                for name, one in processes.items():
                    rss[name].append(one.memory_info().rss // 10**6)
        elapsed = time.monotonic() - began
        return {
            "devices": connected,
            "joined_seconds": round(joined, 1),
            "seconds": round(elapsed, 1),
            "receipts_per_second": round(seen[-1] / elapsed, 1),
            "receipts_per_second_last_half": round((seen[-1] - seen[len(seen) // 2]) / (elapsed / 2), 1),
            "lost_connections": sum(one["lost"] for one in last),
            "refused": sum(one["refused"] for one in last),
            "wait_p50_seconds": round(median(one.get("p50", 0) for one in last), 3),
            "wait_p99_seconds": round(max(one.get("p99", 0) for one in last), 3),
            "cpu_percent": {
                name: round(100 * (sum(one.cpu_times()[:2]) - cpu[name]) / elapsed, 1)
                for name, one in processes.items()
            },
            "rss_mb_every_10_s": rss,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cost", "memory", "reach"))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--period", type=float, default=10)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--pull", action="store_true")
    asked = parser.parse_args()
    if asked.what == "cost":
        figures = cost(asked.seconds, asked.rounds, asked.gateways, asked.devices)
    elif asked.what == "memory":
        figures = memory(asked.devices)
    else:
        figures = reach(
            asked.devices, asked.gateways, asked.period, asked.seconds, tls=asked.tls, pull=asked.pull
        )
    print(json.dumps({"what": asked.what, **figures, "machine": machine()}, indent=1))


if __name__ == "__main__":
    main()
