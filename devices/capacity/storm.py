"""How a fleet returns after an outage: the devices' back-off, the gateways if there are any, and one server.

A device asks again after random waits that double up to 30 s (`shared/protocol/backoff.py`), from the moment
when all lost their connections. A device that asks during the outage waits again. A later one waits for its
turn at a gateway, then at the server. Gateways serve in parallel; the server serves one device after another.
A device that waits for longer than 300 s asks anew. The server serves others meanwhile, so this changes the
order of the devices, but not the time of the last one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.protocol.backoff import back_off


@dataclass(frozen=True, slots=True)
class Storm:
    """The return of a fleet. Seconds count from the end of the outage."""

    outage: float
    devices: int
    """Devices that lost their connections."""
    half_seconds: float
    """When half of the devices are back."""
    last_seconds: float
    """When all devices are back."""
    leader_seconds: float
    """Processor time of the server."""
    gateway_seconds: float
    """Processor time of all gateways together."""
    longest_queue: int
    """The most devices that wait for their turn, at a gateway or at the server."""


class _PerDevice:
    """A random generator that draws one number for each device."""

    def __init__(self, devices: int, seed: int) -> None:
        self._devices, self._numbers = devices, np.random.default_rng(seed)

    def uniform(self, a: float, b: float, /) -> NDArray[np.float64]:
        return self._numbers.uniform(a, b, self._devices)


def simulate_storm(
    devices: int, outage: float, seconds: float, *, gateways: int = 0, gateway_s: float = 0.0, seed: int = 0
) -> Storm:
    """Return the storm of `devices` >= 1 that lose their connections for `outage` seconds.

    Each returning device takes `gateway_s` seconds of one of the `gateways`, if there are any, then `seconds`
    of the server.
    """
    arrivals = first_attempts(devices, outage, seed) - outage
    queues, admitted = [], arrivals
    if gateways:
        gateway_numbers = np.random.default_rng((seed, gateways)).integers(0, gateways, devices)
        admitted = np.empty(devices)
        for gateway in range(gateways):
            chosen = gateway_numbers == gateway
            admitted[chosen] = service_ends(arrivals[chosen], gateway_s)
            queues.append(longest_queue(arrivals[chosen], admitted[chosen]))
        admitted.sort()
    back = service_ends(admitted, seconds)
    queues.append(longest_queue(admitted, back))
    return Storm(
        outage=outage,
        devices=devices,
        half_seconds=float(back[(devices - 1) // 2]),
        last_seconds=float(back[-1]),
        leader_seconds=devices * seconds,
        gateway_seconds=devices * gateway_s * (gateways > 0),
        longest_queue=max(queues),
    )


def service_ends(arrivals: NDArray[np.float64], seconds: float) -> NDArray[np.float64]:
    """Return when each turn ends, for devices that ask at sorted times [devices], one after another."""
    turns = seconds * np.arange(1, arrivals.size + 1)
    return np.asarray(turns + np.maximum.accumulate(arrivals - (turns - seconds)), np.float64)


def longest_queue(arrivals: NDArray[np.float64], back: NDArray[np.float64]) -> int:
    """Return the largest number of devices that have asked and are not back, with the one in service."""
    queues = np.searchsorted(arrivals, back, side="right") - np.arange(arrivals.size)
    return int(queues.max(initial=0))


def first_attempts(devices: int, outage: float, seed: int) -> NDArray[np.float64]:
    """Return when each device first asks after the outage, in sorted seconds [devices] from its start."""
    waits = back_off(_PerDevice(devices, seed))
    times = next(waits)
    while (waiting := times < outage).any():
        times = np.where(waiting, times + next(waits), times)
    return np.sort(times)
