"""The fleet's mean squared gradients (second moments), with which all devices scale gradients alike.

Each device reports its own moments now and then (client/training/local_optimizer.py). The receipt carries
the mean over the most recent reports. They are kept in memory only: after a restart they are collected anew.

A report has bounded influence. For each tensor it counts for at most ten times the median of all reports. So
one false report of ten at most doubles the mean square of a tensor, or lowers it by a tenth. It may put the
whole increase into one row, which then learns more slowly.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import moments
from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]

_MAX_DEVICES = 64
"""The most devices whose reports are kept: the most recent ones."""
_MAX_NUMBERS = 1 << 20
"""The most numbers in all kept reports. Their mean takes a few milliseconds."""

_MAX_RATIO = 10
"""A report counts for at most this many times the median mean square of a tensor."""


class FleetMoments:
    """The last reports of devices, and their mean."""

    def __init__(self, layout: Layout) -> None:
        """`layout` is the layout of the P trained parameters, with L rows and columns (Layout.lines)."""
        self._layout = layout
        self._max_reports = max(1, min(_MAX_DEVICES, _MAX_NUMBERS // int(layout.lines[-1])))
        self._reports: dict[int, tuple[Vector, Vector]] = {}
        """Device -> (mean squared gradients of rows and columns, float32 [L]; of tensors, float32 [T])."""

    def report(self, device: int, octets: bytes) -> bytes:
        """Take a device's moments, as in an Update. Return the fleet's for the Receipt; b"" for no moments.

        Raises WrongDtype if they are not of this model.
        """
        if not octets:
            return b""
        means = moments.decode(octets, self._layout)
        self._reports.pop(device, None)
        self._reports[device] = means, moments.energies(means, self._layout)
        if len(self._reports) > self._max_reports:
            del self._reports[next(iter(self._reports))]
        return moments.encode(self._mean())

    def _mean(self) -> Vector:
        """Return the mean of the bounded reports, float32 [L]."""
        means, energies = (np.stack(part) for part in zip(*self._reports.values(), strict=True))
        limits = _MAX_RATIO * np.median(energies, axis=0)
        parts = np.ones_like(energies)
        np.divide(limits, energies, out=parts, where=energies > limits)
        means *= np.repeat(parts, np.diff(self._layout.lines), axis=1)
        mean: Vector = means.mean(axis=0)
        return mean
