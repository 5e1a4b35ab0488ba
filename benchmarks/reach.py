"""Connected devices, directly or through gateways: processes of each, a crowd, and what it takes."""

import asyncio
import json
import logging
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import psutil

from benchmarks.audit import initial_theta
from benchmarks.hosting import hosted_run
from benchmarks.load import process
from benchmarks.plain import EXACT
from benchmarks.updates import LAYOUT
from edgeflock.server.app import create_app, listen
from edgeflock.server.gateway import Gateway, GatewayAddress
from edgeflock.server.identity import own_certificate, server_tls
from edgeflock.server.ledger import claim_run
from edgeflock.shared.settings.config import parse

Started = tuple[int, psutil.Process]

LOSSY = ("downlink.mode=lossy",)


def _serve_gateway(ready: Connection, leader: int, directory: str, tls: bool) -> None:
    async def main() -> None:
        place = GatewayAddress(port=0)
        if tls:
            own = own_certificate(Path(directory), "127.0.0.1")
            place = GatewayAddress(port=0, certificate=own.certificate, key=own.key)
        one = Gateway(f"http://127.0.0.1:{leader}", "", "benchmark", place)
        async with one.serving() as port:
            await one.serve_until(one.upstream.ready)
            ready.send(port)
            await one.serve_until(asyncio.Event())

    asyncio.run(main())


def _serve_leader(ready: Connection, directory: str, tls: bool, settings: Sequence[str]) -> None:
    """Of benchmarks.updates.LAYOUT, for a crowd."""
    logging.disable(logging.WARNING)  # thousands that are silent are what is measured

    async def main() -> None:
        config = parse(
            overrides=[
                "server.open=true", "model.data=", *EXACT, "limits.devices=60000",
                "limits.unauthenticated=60000", "limits.hello_seconds=300", "limits.request_seconds=300",
                "coordination.learning_rate=1e-3", "coordination.window=65536", *settings,
            ]
        )  # fmt: skip
        claim_of = claim_run(Path(directory), "directory", LAYOUT, initial_theta(), config)
        with claim_of as claim, hosted_run(claim, Path(directory)) as hosted:
            line = server_tls(own_certificate(Path(directory), "127.0.0.1"))[0] if tls else None
            async with listen(create_app(config, hosted), "127.0.0.1", 0, line) as port:
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
        reported: dict[str, Any] = json.loads(line)
        return reported

    def end(self) -> None:
        for one in self._processes:
            one.kill()
            one.communicate()


@dataclass(frozen=True, slots=True)
class Reached:
    """What connected devices came to. Of each process, by its name, in percent of a core and in MB."""

    devices: int
    gateways: int
    """0: directly."""
    offered_per_second: float
    joined_seconds: float
    joining_ms_a_device: dict[str, float]
    """Processor time of each process for a device that connects, of a gateway for one of its own."""
    seconds: float
    receipts_per_second: float
    lost_connections: int
    refused: int
    wait_p50_seconds: float
    """For a receipt; the median second of the second half, and"""
    wait_p99_seconds: float
    """of the last one."""
    cpu_percent: dict[str, float]
    bytes_an_update: dict[str, float]
    """Of devices, in the second half, when all hold a model; and on gateways' lines, all of them together."""
    entries_an_answer: float
    """In the second half."""
    rss_mb_empty: dict[str, int]
    """Before a device came, and"""
    rss_mb: dict[str, list[int]]
    """every ten seconds."""


@dataclass(frozen=True, slots=True)
class _Second:
    """What had come of it all by a time."""

    time: float
    cpu: dict[str, float]
    wait: float
    receipts: float
    up: float
    down: float
    entries: float


def reach(devices: int, gateways: int, period: float, seconds: float, *, tls: bool, pull: bool) -> Reached:
    """Devices that are connected for so long, and push every `period` seconds."""
    flags = [*(["--tls"] if tls else []), *(["--pull"] if pull else [])]
    with ExitStack() as stack:
        leader = stack.enter_context(leading(*(LOSSY if pull else ()), tls=tls and not gateways))
        lines = [stack.enter_context(gateway(leader[0], tls=tls)) for _ in range(gateways)]
        processes = {"leader": leader[1], **{f"gateway {n}": one for n, (_, one) in enumerate(lines, 1)}}
        reported = _asker(leader[0], tls=tls and not gateways)
        time.sleep(1)  # gateways take up the model
        empty = {name: one.memory_info().rss // 10**6 for name, one in processes.items()}
        idle, began = _cpu(processes), time.monotonic()
        crowd = Crowd([port for port, _ in lines] or [leader[0]], devices, period, seconds, *flags)
        stack.callback(crowd.end)
        connected = crowd.connected()
        joined, joining = time.monotonic() - began, _cpu(processes)
        print(f"{connected:,} devices are connected", file=sys.stderr, flush=True)
        counted = reported()
        rss: dict[str, list[int]] = {name: [] for name in processes}
        seen: list[_Second] = []
        while (counts := crowd.counts()) is not None:
            sums = {key: sum(one[key] for one in counts) for key in ("receipts", "up", "down", "entries")}
            wait = median(one.get("p50", 0.0) for one in counts)
            seen.append(_Second(time.monotonic(), _cpu(processes), wait, **sums))
            last = counts
            print(sums["receipts"], file=sys.stderr, flush=True)
            if len(seen) % 10 == 1:
                for name, one in processes.items():
                    rss[name].append(one.memory_info().rss // 10**6)
        now, first, middle, end = reported(), seen[0], seen[len(seen) // 2], seen[-1]
        elapsed, late = end.time - first.time, max(1, end.receipts - middle.receipts)
        updates = max(1, now["updates"] - counted["updates"])
        moved = {"up": (end.up - middle.up) / late, "down": (end.down - middle.down) / late}
        moved |= {key: (now[key] - counted[key]) / updates for key in ("to leader", "to gateways")}
        shares = {name: 1 if name == "leader" else gateways for name in processes}
        return Reached(
            devices=connected,
            gateways=gateways,
            offered_per_second=round(devices / period, 1),
            joined_seconds=round(joined, 1),
            joining_ms_a_device={
                name: round(1e3 * share * (joining[name] - idle[name]) / connected, 2)
                for name, share in shares.items()
            },
            seconds=round(elapsed, 1),
            receipts_per_second=round((end.receipts - first.receipts) / elapsed, 1),
            lost_connections=sum(int(one["lost"]) for one in last),
            refused=sum(int(one["refused"]) for one in last),
            wait_p50_seconds=round(median(one.wait for one in seen[len(seen) // 2 :]), 4),
            wait_p99_seconds=round(max(one.get("p99", 0.0) for one in last), 3),
            cpu_percent={
                name: round(100 * (end.cpu[name] - first.cpu[name]) / elapsed, 1) for name in processes
            },
            bytes_an_update={key: round(octets, 1) for key, octets in moved.items()},
            entries_an_answer=round((end.entries - middle.entries) / late, 1),
            rss_mb_empty=empty,
            rss_mb=rss,
        )


def _cpu(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    """Processor seconds so far."""
    return {name: sum(one.cpu_times()[:2]) for name, one in processes.items()}


def _asker(port: int, *, tls: bool) -> Callable[[], dict[str, int]]:
    """Asks a leader how many updates it took, and what moved on gateways' lines."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1/status"

    def ask() -> dict[str, int]:
        with urlopen(url, timeout=60, context=context if tls else None) as answer:
            status = json.load(answer)
        lines = status["gateways"]
        return {
            "updates": status["version"],
            "to leader": sum(line["ingress"] for line in lines),
            "to gateways": sum(line["egress"] for line in lines),
        }

    return ask
