"""How a fleet returns after an outage: the devices' own back-off, and a server that takes one after another.

A device asks again after waits that double up to 30 s, drawn at random (`shared/protocol/backoff.py`), from
the moment when all lost their lines. Who asks while the server is away waits again; who asks once it is there
gets its turn. A device that waits for longer than 300 s asks anew; the server works for others meanwhile, so
that this changes who comes when, not when the last one does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.devices.capacity import costs
from edgeflock.shared.protocol.backoff import back_off


@dataclass(frozen=True, slots=True)
class Storm:
    """Seconds are from the moment when the server is there again."""

    outage: float
    half_seconds: float
    """Half of the devices are back; and"""
    last_seconds: float
    """all of them."""
    busy_seconds: float
    """Processor time that it takes the server."""
    longest_queue: int
    """Devices that have asked and wait for their turn."""


class _Together:
    """One draw for each of many devices."""

    def __init__(self, devices: int, seed: int) -> None:
        self._devices, self._numbers = devices, np.random.default_rng(seed)

    def uniform(self, a: float, b: float, /) -> NDArray[np.float64]:
        return self._numbers.uniform(a, b, self._devices)


def return_seconds(tls: bool) -> float:
    """Processor time that a device takes a server to come back."""
    return costs.RETURN_TLS_SECONDS if tls else costs.RETURN_SECONDS


def storm_of(devices: int, outage: float, seconds: float, seed: int = 0) -> Storm:
    """`devices` >= 1 lose their server for `outage` seconds; each takes it `seconds` to come back."""
    asked = asking(devices, outage, seed) - outage
    turns = seconds * np.arange(1, devices + 1)
    back = turns + np.maximum.accumulate(asked - (turns - seconds))
    queues = np.searchsorted(asked, back, side="right") - np.arange(devices)
    return Storm(
        outage=outage,
        half_seconds=float(back[(devices - 1) // 2]),
        last_seconds=float(back[-1]),
        busy_seconds=devices * seconds,
        longest_queue=int(queues.max()),
    )


def asking(devices: int, outage: float, seed: int) -> NDArray[np.float64]:
    """When each device first asks a server that is there again: sorted seconds [devices], from the beginning
    of the outage."""
    waits = back_off(_Together(devices, seed))
    times = next(waits)
    while (away := times < outage).any():
        times = np.where(away, times + next(waits), times)
    return np.sort(times)
