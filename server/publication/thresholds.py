"""From which size on a difference is worth sending: a threshold a tensor, which follows what it lets through.

The tensors share a step by the root of their sizes (or another power). In all it has a given fraction of the
parameters, on average; more, if that takes less than a target share of |theta - B|^2 away.

The target is derived from a bound on how old a device's copy B is. A step that takes the share s away leaves
1 - s. So B lags (1 - s) / s steps behind, of `behind` versions each. It lags no more than `lag` versions for

    s = behind / (behind + lag)

so that few devices, whose steps are short, need little a step, and many need much. A given share bounds s.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

_GAIN = 0.1
"""A threshold moves by at most a tenth a step,"""

_SLOW = 0.02
"""and the fraction by a fiftieth: what it leads to shows only after several steps of every device."""

_MOST = 0.25
"""The largest fraction that follows."""

_LONGEST = 1024
"""Versions: a device that was away for longer counts as one that was away for so long."""


class Thresholds:
    """Of one run, the same for all devices."""

    def __init__(self, layout: Layout, fraction: float, balance: float, share: float, lag: int = 0) -> None:
        """`layout` is that of the P trained parameters. A step has `fraction` of them; more, if that takes
        less away than `lag`, in versions, allows. No share above `share` is aimed at.
        """
        self._bounds = layout.bounds
        self._share, self.lag = share, lag
        self._behind = 0.0
        """Versions between two steps of a device, on average."""
        self._fraction = self._least = fraction
        sizes = np.diff(layout.bounds).astype(np.float64)
        weights = np.where(sizes > 0, sizes**balance, 0.0)
        self._shares = layout.size * weights / weights.sum()
        self.values: NDArray[np.float32] = np.zeros(sizes.size, np.float32)
        """float32 [T]."""

    def begin_again(self) -> None:
        """As if nothing had been sent yet."""
        self._fraction = self._least
        self._behind = 0.0
        self.values[:] = 0

    @property
    def target(self) -> float:
        """The share of |theta - B|^2 that a step is to take away."""
        return min(self._share, self._behind / (self._behind + self.lag)) if self.lag else self._share

    @property
    def quota(self) -> float:
        """Entries of a usual step."""
        return float(self._fraction * self._shares.sum())

    def begin(self, counts: NDArray[np.int64], theta: NDArray[np.float32], held: NDArray[np.float32]) -> bool:
        """Whether there is a threshold now for a tensor that had none: one that lets its part of
        |theta - held| (both float32 [P]) through. Of tensor t counts[t] entries differ; while that is no
        more than its part, it needs none.
        """
        if self.values.all():
            return False
        wanted = np.ceil(self._fraction * self._shares).astype(np.int64)
        beginning = np.flatnonzero((self.values == 0) & (counts > wanted)).tolist()
        for tensor in beginning:
            place = slice(self._bounds[tensor], self._bounds[tensor + 1])
            lacks = np.abs(theta[place] - held[place])
            last = lacks.size - 1 - int(wanted[tensor])
            self.values[tensor] = np.partition(lacks, last)[last]
        return bool(beginning)

    def rise(self) -> None:
        """A step had many times what is usual."""
        self.values *= np.float32(np.exp(_GAIN))

    def follow(self, counts: NDArray[np.int64], lacking: float, left: float, behind: int = 0) -> None:
        """A step had counts[t] entries of tensor t, and left `left` of |theta - B|^2 = `lacking`. The one
        before was `behind` versions ago.
        """
        self._behind += _SLOW * (min(behind, _LONGEST) - self._behind)
        target = self.target
        wanted = self._fraction * self._shares
        error = np.minimum(np.maximum((counts - wanted) / np.maximum(wanted, 1), -1), 1)
        self.values *= np.exp(_GAIN * error).astype(np.float32)
        if target and 0 < lacking < math.inf and math.isfinite(left):
            short = min(max((target - (1 - left / lacking)) / target, -1), 1)
            fraction = self._fraction * math.exp(_SLOW * short)
            self._fraction = min(max(fraction, self._least), max(self._least, _MOST))
