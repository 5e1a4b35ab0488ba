"""How a fleet returns after an outage: the devices' own back-off, gateways if there are any, and one server.

A device asks again after waits that double up to 30 s, drawn at random (`shared/protocol/backoff.py`), from
the moment when all lost their lines. Who asks while nobody is there waits again; who asks once somebody is
gets its turn: at one of the gateways, which take theirs beside each other, and then at the server, which
takes one after another. A device that waits for longer than 300 s asks anew; the server works for others
meanwhile, so that this changes who comes when, not when the last one does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.protocol.backoff import back_off


@dataclass(frozen=True, slots=True)
class Storm:
    """Seconds are from the end of the outage."""

    outage: float
    devices: int
    """That lost their lines."""
    half_seconds: float
    """Half of the devices are back; and"""
    last_seconds: float
    """all of them."""
    leader_seconds: float
    """Processor time that it takes the server, and"""
    gateway_seconds: float
    """the gateways together."""
    longest_queue: int
    """Devices that have asked and wait for their turn, at a gateway or at the server."""


class _Together:
    """One draw for each of many devices."""

    def __init__(self, devices: int, seed: int) -> None:
        self._devices, self._numbers = devices, np.random.default_rng(seed)

    def uniform(self, a: float, b: float, /) -> NDArray[np.float64]:
        return self._numbers.uniform(a, b, self._devices)


def storm_of(
    devices: int, outage: float, seconds: float, *, gateways: int = 0, each: float = 0.0, seed: int = 0
) -> Storm:
    """`devices` >= 1 lose their lines for `outage` seconds; each takes the server `seconds` to come back, and
    before that one of the `gateways` the seconds of `each`."""
    asked = asking(devices, outage, seed) - outage
    queues, passed = [], asked
    if gateways:
        where = np.random.default_rng((seed, gateways)).integers(0, gateways, devices)
        passed = np.empty(devices)
        for one in range(gateways):
            these = where == one
            passed[these] = served(asked[these], each)
            queues.append(waiting(asked[these], passed[these]))
        passed.sort()
    back = served(passed, seconds)
    queues.append(waiting(passed, back))
    return Storm(
        outage=outage,
        devices=devices,
        half_seconds=float(back[(devices - 1) // 2]),
        last_seconds=float(back[-1]),
        leader_seconds=devices * seconds,
        gateway_seconds=devices * each * (gateways > 0),
        longest_queue=max(queues),
    )


def served(asked: NDArray[np.float64], seconds: float) -> NDArray[np.float64]:
    """When each has had its turn, of those that ask at sorted times [devices], one after another."""
    turns = seconds * np.arange(1, asked.size + 1)
    return np.asarray(turns + np.maximum.accumulate(asked - (turns - seconds)), np.float64)


def waiting(asked: NDArray[np.float64], back: NDArray[np.float64]) -> int:
    """The most that have asked and are not back, whoever has its turn included."""
    queues = np.searchsorted(asked, back, side="right") - np.arange(asked.size)
    return int(queues.max(initial=0))


def asking(devices: int, outage: float, seed: int) -> NDArray[np.float64]:
    """When each device first asks somebody that is there again: sorted seconds [devices], from the beginning
    of the outage."""
    waits = back_off(_Together(devices, seed))
    times = next(waits)
    while (away := times < outage).any():
        times = np.where(away, times + next(waits), times)
    return np.sort(times)
