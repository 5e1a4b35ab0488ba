"""The fleet's second moments: what devices divide their gradients by, so that all of them scale alike.

Each device reports its own now and then (client/training/adafactor.py), and is answered with the mean over
the devices that did so lately. They are kept in memory alone: after a restart they are collected anew.

A report cannot do much harm. Of each tensor it counts for at most ten times the median of all reports. So a
false one among ten at most doubles the mean square of a tensor, or takes a tenth of it. It may put all of it
into one row, which then learns slower.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import moments
from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]

_DEVICES = 64
"""Whose reports are kept: the last ones that came, but no more than make"""
_NUMBERS = 1 << 20
"""numbers, of which a mean takes a few milliseconds."""

_MOST = 10
"""How many times the median mean square of a tensor a report counts for, at most."""


class FleetMoments:
    """The last reports of devices, and their mean."""

    def __init__(self, layout: Layout) -> None:
        """`layout` is that of the P trained parameters, of L rows and columns (Layout.lines)."""
        self._layout = layout
        self._most = max(1, min(_DEVICES, _NUMBERS // int(layout.lines[-1])))
        self._reports: dict[int, tuple[Vector, Vector]] = {}
        """Device -> (its means, float32 [L]; the mean square of each tensor, float32 [T])."""

    def report(self, device: int, octets: bytes) -> bytes:
        """Take a device's moments, as an Update has them. The fleet's for the Receipt; nothing for nothing.

        Raises WrongDtype if they are not of this model.
        """
        if not octets:
            return b""
        means = moments.decode(octets, self._layout)
        self._reports.pop(device, None)
        self._reports[device] = means, moments.energies(means, self._layout)
        if len(self._reports) > self._most:
            del self._reports[next(iter(self._reports))]
        return moments.encode(self._mean())

    def _mean(self) -> Vector:
        """Over the devices, each tensor bounded: float32 [L]."""
        means, energies = (np.stack(part) for part in zip(*self._reports.values(), strict=True))
        most = _MOST * np.median(energies, axis=0)
        parts = np.ones_like(energies)
        np.divide(most, energies, out=parts, where=energies > most)
        means *= np.repeat(parts, np.diff(self._layout.lines), axis=1)
        mean: Vector = means.mean(axis=0)
        return mean
