"""Each fault, done once, and what it came to: a dict that can be printed as JSON.

In every one the receipts that devices noted are held against the journal in the end.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.faults.crew import Crew, crew, free_port
from benchmarks.faults.device import Noted
from benchmarks.faults.link import SERVER_ADDRESS, bad_line

Figures = dict[str, Any]

TOGETHER = 250
"""Devices in one process, where there are many."""

PATIENCE = 300
"""Seconds after which what should have happened is taken not to happen."""


async def partition(folder: Path, seconds: float = 120, devices: int = 8) -> Figures:
    """All devices lose the server for so long, without a word to either end."""
    with bad_line() as line, _on(line.server, line.device, folder) as processes:
        await processes.start_server()
        names = _names(devices)
        processes.start_devices(names)
        await _receipts_of(processes, names, since=0)
        line.weather.cut = True
        began = time.monotonic()
        await asyncio.sleep(seconds)
        line.weather.cut = False
        healed = time.monotonic()
        back = await _receipts_of(processes, names, since=healed)
        during = [one for one in processes.receipts if began + 1 < one.at < healed]
        return {"seconds": seconds, "during": len(during), **_spread(back, healed), **processes.verdict()}


async def bad_weather(
    folder: Path, seconds: float = 60, round_trip: float = 0.3, loss: float = 0.05
) -> Figures:
    """A line with a long way and lost packets, and the same without, for as long. Times are in seconds."""
    rates = {}
    with bad_line() as line, _on(line.server, line.device, folder) as processes:
        await processes.start_server()
        names = _names(8)
        processes.start_devices(names, pause=0)
        await _receipts_of(processes, names, since=0)
        for weather, delay, lost in (("fair", 0.0, 0.0), ("bad", round_trip / 2, loss)):
            line.weather.delay, line.weather.loss = delay, lost
            began = time.monotonic()
            await asyncio.sleep(seconds)
            came = [one for one in processes.receipts if one.at > began]
            rates[f"receipts_a_second_{weather}"] = round(len(came) / seconds, 2)
            rates[f"longest_gap_{weather}"] = round(max(_gap(came, name, began) for name in names), 2)
        return {"seconds": seconds, "round_trip": round_trip, "loss": loss, **rates, **processes.verdict()}


async def half_crashes(folder: Path, seconds: float = 10, mode: str = "async") -> Figures:
    """Four of eight devices are killed at once and come back later."""
    with crew(folder, f"coordination.mode={mode}") as processes:
        await processes.start_server()
        names = _names(8)
        processes.start_devices(names[:4])
        processes.start_devices(names[4:])
        await _receipts_of(processes, names, since=0)
        processes.kill_devices(names[0])
        began = time.monotonic()
        await _receipts_of(processes, names[4:], since=began)  # they go on, however slow the machine is
        await asyncio.sleep(began + seconds - time.monotonic())
        elapsed = time.monotonic() - began
        came = [one for one in processes.receipts if one.at > began]
        gaps = [_gap(came, name, began) for name in names[4:]]
        returned = time.monotonic()
        processes.start_devices(names[:4])
        back = await _receipts_of(processes, names[:4], since=returned)
        return {
            "mode": mode,
            "receipts_a_second_of_the_rest": round(len(came) / elapsed, 2),
            "longest_gap_of_the_rest": round(max(gaps), 2),
            **_spread(back, returned),
            **processes.verdict(),
        }


async def killed_clients(folder: Path, kills: int = 50, devices: int = 4, seed: int = 0) -> Figures:
    """Clients are killed in the middle of whatever they do, mostly of a push, and started again."""
    random = Random(seed)
    with crew(folder) as processes:
        await processes.start_server()
        names = _names(devices)
        for name in names:
            processes.start_devices([name], pause=0)
        await _receipts_of(processes, names, since=0)
        for _ in range(kills):
            name = random.choice(names)
            processes.kill_devices(name)
            started = time.monotonic()
            processes.start_devices([name], pause=0)
            await _receipts_of(processes, [name], since=started)
            await asyncio.sleep(random.uniform(0, 0.2))
        return {"kills": kills, **processes.verdict()}


async def crowd(folder: Path, devices: int = 1000) -> Figures:
    """The server is killed, and all devices come back at once."""
    with crew(folder, f"limits.devices={2 * devices}") as processes:
        await processes.start_server()
        names = _names(devices)
        _in_few_processes(processes, names, pause=5)
        await _receipts_of(processes, names, since=0)
        processes.kill_server()
        await asyncio.sleep(1)
        await processes.start_server()
        restarted = time.monotonic()
        back = await _receipts_of(processes, names, since=restarted)
        cpu = processes.server.cpu_times()
        used = {
            "server_cpu_seconds": round(cpu.user + cpu.system, 1),
            "server_mb": processes.server.memory_info().rss // 10**6,
        }
        return {"devices": devices, **used, **_spread(back, restarted), **processes.verdict()}


async def sessions(folder: Path, devices: int = 2000, minutes: float = 30) -> Figures:
    """So many devices for so long: the server's memory, from when all are there."""
    with crew(folder, f"limits.devices={2 * devices}") as processes:
        await processes.start_server()
        names = _names(devices)
        _in_few_processes(processes, names, pause=20)
        await _receipts_of(processes, names, since=0)
        began, memory = time.monotonic(), []
        cpu = sum(processes.server.cpu_times()[:2])
        while (elapsed := time.monotonic() - began) < minutes * 60:
            memory.append(round(processes.server.memory_info().rss / 1e6, 1))
            await asyncio.sleep(min(60, minutes * 60 - elapsed))
        cpu = sum(processes.server.cpu_times()[:2]) - cpu
        came = [one for one in processes.receipts if one.at > began]
        return {
            "devices": devices,
            "minutes": minutes,
            "receipts": len(came),
            "of_devices": len({one.name for one in came}),
            "server_cpu_percent": round(100 * cpu / (minutes * 60), 1),
            "server_mb_by_minute": memory,
            **processes.verdict(),
        }


async def killed_gateways(
    folder: Path, kills: int = 20, devices: int = 16, gateways: int = 2, leader: int = 0, seed: int = 0
) -> Figures:
    """Kill gateways under load, one after the other, and the leader `leader` times, and restart each.

    Return the seconds from a kill until every device has a receipt again.
    """
    random, back = Random(seed), []
    with crew(folder) as processes:
        await processes.start_server()
        ports: list[int] = []
        for _ in range(gateways):
            ports.append(free_port(processes.port, *ports))
            await processes.start_gateway(ports[-1])
        names = _names(devices)
        for number in range(gateways):
            others = [*ports[number:], *ports[:number]]
            processes.start_devices(names[number::gateways], pause=0, seed=number, through=others)
        await _receipts_of(processes, names, since=0)
        began = time.monotonic()
        victims: list[int] = [random.choice(ports) for _ in range(kills)] + [0] * leader
        random.shuffle(victims)
        for port in victims:
            killed = time.monotonic()
            if port:
                processes.kill_gateway(port)
                await processes.start_gateway(port)
            else:
                processes.kill_server()
                await processes.start_server()
            back += [one.at - killed for one in await _receipts_of(processes, names, since=killed)]
            await asyncio.sleep(random.uniform(0, 0.5))
        seconds = time.monotonic() - began
        came = sum(one.at > began for one in processes.receipts)
        return {
            "kills": kills,
            "leader_kills": leader,
            "devices": devices,
            "gateways": gateways,
            "receipts_a_second": round(came / seconds, 1),
            "back_median_seconds": round(median(back), 1),
            "back_last_seconds": round(max(back), 1),
            **processes.verdict(),
        }


def _on(server: Sequence[str], device: Sequence[str], folder: Path) -> AbstractContextManager[Crew]:
    return crew(folder, host=SERVER_ADDRESS, server_prefix=server, device_prefix=device)


def _names(devices: int) -> list[str]:
    return [f"device-{number}" for number in range(devices)]


def _in_few_processes(processes: Crew, names: list[str], pause: float) -> None:
    for first in range(0, len(names), TOGETHER):
        processes.start_devices(names[first : first + TOGETHER], pause, seed=first)


async def _receipts_of(processes: Crew, names: Sequence[str], since: float) -> list[Noted]:
    """The first receipt of each of these after `since`, once there are all."""
    async with asyncio.timeout(PATIENCE):
        while True:
            first: dict[str, Noted] = {}
            came = processes.receipts
            for one in came[bisect_right(came, since, key=lambda one: one.at) :]:
                first.setdefault(one.name, one)
            if first.keys() >= set(names):
                return [first[name] for name in names]
            await asyncio.sleep(0.2)


def _spread(back: Sequence[Noted], since: float) -> Figures:
    """Seconds until devices had their first receipt."""
    after = [one.at - since for one in back]
    return {"back_median_seconds": round(median(after), 1), "back_last_seconds": round(max(after), 1)}


def _gap(came: Sequence[Noted], name: str, began: float) -> float:
    """The longest time without a receipt of this device, from `began` to now."""
    times = [began, *(one.at for one in came if one.name == name), time.monotonic()]
    return max(after - before for before, after in zip(times, times[1:], strict=False))


SCENARIOS: dict[str, Callable[..., Awaitable[Figures]]] = {
    "partition": partition,
    "bad-weather": bad_weather,
    "half-crashes": half_crashes,
    "killed-clients": killed_clients,
    "killed-gateways": killed_gateways,
    "crowd": crowd,
    "sessions": sessions,
}
