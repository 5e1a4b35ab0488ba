"""Running statistics: how they follow the statistics of devices' batches, and the limits for one update."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

FREE, LIMITED = "free", "limited"
"""`StepMethod.statistics`: an update's statistics count as they are, or as `Running.limited` leaves them."""

_MAX_DEVIATIONS = np.float32(2)
"""The most standard deviations that an update's mean may be away."""

_MAX_RATIO = np.float32(2)
"""The largest ratio of an update's variance to the current one. With 2, one device in ten adds less than the
other nine take away, however often it sends. This holds while more than half of them are honest."""

_EPSILON = np.float32(1e-5)
"""Added to each variance, as BatchNorm does."""


def move_towards(running: Vector, statistics: Vector, lag: int) -> None:
    """Compute b <- b + (s - b) / lag, in place."""
    running += (statistics - running) / np.float32(lag)


class Running:
    """The running statistics of a version, and the layers that they belong to."""

    def __init__(self, current: Vector, norms: Sequence[tuple[slice, slice]]) -> None:
        """`current` is float32 [B]; `norms` is as in Layout.norms."""
        self._current = current.copy()
        self._norms = norms

    def follow(self, statistics: Vector, lag: int) -> None:
        """Update the statistics in the same way as those in theta."""
        move_towards(self._current, statistics, lag)

    def limit(self, statistics: Vector) -> tuple[Vector, float]:
        """Return (s', how many times beyond the limit s is; 0: within), for the statistics s of an update.

        For a layer's running means m and variances v, and for each channel w = max(v, mean of v) + 1e-5:

            s'_mean = s_mean, at least m - 2 sqrt(w), at most m + 2 sqrt(w)
            s'_var  = s_var, at most 2 w

        A channel that is active only in few devices' data has a small v, so w comes from its layer. All is in
        float32. The mean is exact before it is rounded, so the bits are the same on every machine.
        """
        limited, excess = statistics.copy(), 0.0
        for means, variances in self._norms:
            now = self._current[variances]
            usual = np.float32(max(0.0, math.fsum(now.tolist()) / max(1, now.size)))
            spread = np.maximum(now, usual) + _EPSILON
            margin, largest = _MAX_DEVIATIONS * np.sqrt(spread), _MAX_RATIO * spread
            mean, centre = statistics[means], self._current[means]
            ratios = np.maximum(np.abs(mean - centre) / margin, statistics[variances] / largest)
            if (ratio := float(ratios.max(initial=0))) > 1:
                excess = max(excess, ratio)
                limited[means] = np.clip(mean, centre - margin, centre + margin)
                limited[variances] = np.minimum(statistics[variances], largest)
        return limited, excess
