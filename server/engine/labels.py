"""The share of each class in the fleet's data and in its updates, so that a slow device's classes count too.

Each device reports the share of each class in its batches now and then. The receipt carries two means of
these shares: q over the devices, and e weighted by each device's part of recent updates. A class whose q is
above its e is in too few updates. Reports are kept in memory only: after a restart they are collected anew. A
false report moves q by the part of one of the devices, and e by that device's part of the updates.
"""

from collections import Counter, deque

import numpy as np

from edgeflock.shared.codecs import labels
from edgeflock.shared.codecs.labels import Vector

_MAX_DEVICES = 256
"""The most devices whose reports are kept: the most recent ones."""
_MAX_NUMBERS = 1 << 18
"""The most numbers in all kept reports. Their two means take a third of a millisecond."""

_RECENT_UPDATES = 1024
"""How many recent updates determine the part of a device in e."""


class FleetLabels:
    """The last reports of devices, and the part of recent updates that each device sent."""

    def __init__(self) -> None:
        self._reports: dict[int, Vector] = {}
        self._recent: deque[int] = deque()
        self._counts: Counter[int] = Counter()
        self.overlap = 1.0
        """The mean of sum min(p, q) over devices with known shares p; 1: all devices hold the same."""

    def count(self, device: int) -> None:
        """Count an applied update of a device."""
        self._recent.append(device)
        self._counts[device] += 1
        if len(self._recent) > _RECENT_UPDATES:
            oldest = self._recent.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def report(self, device: int, octets: bytes) -> bytes:
        """Take the shares in a device's Update. Return q and e for the Receipt, or b"" for no shares.

        Raises WrongDtype if they are no shares.
        """
        if not octets:
            return b""
        (shares,) = labels.decode(octets)
        self._reports.pop(device, None)
        self._reports[device] = shares
        while len(self._reports) > max(1, min(_MAX_DEVICES, _MAX_NUMBERS // len(shares))):
            del self._reports[next(iter(self._reports))]
        alike = {one: vector for one, vector in self._reports.items() if len(vector) == len(shares)}
        reported = np.stack([*alike.values()])
        parts = np.array([self._counts[one] for one in alike], np.float64)
        mean = reported.mean(axis=0)
        if 2 * len(alike) > len(self._reports):
            self.overlap = float(np.minimum(reported, mean).sum(axis=1).mean())
        recent = parts @ reported / parts.sum() if parts.any() else mean
        return labels.encode(np.stack((mean, recent)))
