"""Which classes the fleet's data hold, and which its updates: so that a slow device's classes count too.

Each device reports the share of each class in its batches now and then. It is answered with two means over
the devices. In q all devices count alike. In e each counts by the updates that it sent lately. A class of
which q is more than e is learned from too few updates. Reports are kept in memory alone: after a restart they
are collected anew. A false report moves q by one device's part, and e by that device's part of the updates.
"""

from collections import Counter, deque

import numpy as np

from edgeflock.shared.codecs import labels
from edgeflock.shared.codecs.labels import Vector

_DEVICES = 256
"""Whose reports are kept: the last ones that came, but no more than make"""
_NUMBERS = 1 << 18
"""numbers, of which both means take a third of a millisecond."""

_UPDATES = 1024
"""The updates by which a device's part in e is counted."""


class FleetLabels:
    """The last reports of devices, and what part of the updates each device sent."""

    def __init__(self) -> None:
        self._reports: dict[int, Vector] = {}
        self._lately: deque[int] = deque()
        self._counts: Counter[int] = Counter()
        self.overlap = 1.0
        """sum min(p, q), the mean over the devices whose shares p are known: 1 where all hold the same."""

    def count(self, device: int) -> None:
        """A device's update was applied."""
        self._lately.append(device)
        self._counts[device] += 1
        if len(self._lately) > _UPDATES:
            gone = self._lately.popleft()
            self._counts[gone] -= 1
            if not self._counts[gone]:
                del self._counts[gone]

    def report(self, device: int, octets: bytes) -> bytes:
        """Take a device's shares, as an Update has them. q and e for the Receipt; nothing for nothing.

        Raises WrongDtype if they are no shares.
        """
        if not octets:
            return b""
        (shares,) = labels.decode(octets)
        self._reports.pop(device, None)
        self._reports[device] = shares
        while len(self._reports) > max(1, min(_DEVICES, _NUMBERS // len(shares))):
            del self._reports[next(iter(self._reports))]
        alike = {one: of for one, of in self._reports.items() if len(of) == len(shares)}
        reported = np.stack([*alike.values()])
        parts = np.array([self._counts[one] for one in alike], np.float64)
        mean = reported.mean(axis=0)
        if 2 * len(alike) > len(self._reports):
            self.overlap = float(np.minimum(reported, mean).sum(axis=1).mean())
        lately = parts @ reported / parts.sum() if parts.any() else mean
        return labels.encode(np.stack((mean, lately)))
