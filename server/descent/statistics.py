"""Running statistics: how they follow the statistics of devices' batches, and the limits for one update."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

FREE, LIMITED = "free", "limited"
"""`StepMethod.statistics`: an update's statistics count as they are, or as `Running.limited` leaves them."""

_DEVIATIONS = np.float32(2)
"""The most standard deviations that an update's mean may be away."""

_TIMES = np.float32(2)
"""The largest ratio of an update's variance to the current one. With 2, one device in ten adds less than the
other nine take away, however often it sends. This holds while more than half of them are honest."""

_LEAST = np.float32(1e-5)
"""Added to each variance, as BatchNorm does."""


def follow(running: Vector, statistics: Vector, lag: int) -> None:
    """b <- b + (s - b) / lag, in place."""
    running += (statistics - running) / np.float32(lag)


class Running:
    """The running statistics of a version, and the layers that they belong to."""

    def __init__(self, now: Vector, norms: Sequence[tuple[slice, slice]]) -> None:
        """`now` is float32 [B]; `norms` is as in Layout.norms."""
        self._now = now.copy()
        self._norms = norms

    def follow(self, statistics: Vector, lag: int) -> None:
        """Update the statistics in the same way as those in theta."""
        follow(self._now, statistics, lag)

    def limited(self, statistics: Vector) -> tuple[Vector, float]:
        """Return (s', how many times beyond the limit s is; 0: within), for the statistics s of an update.

        For a layer's running means m and variances v, and for each channel w = max(v, mean of v) + 1e-5:

            s'_mean = s_mean, at least m - 2 sqrt(w), at most m + 2 sqrt(w)
            s'_var  = s_var, at most 2 w

        A channel that is active only in few devices' data has a small v, so w comes from its layer. All is in
        float32. The mean is exact before it is rounded, so the bits are the same on every machine.
        """
        found, beyond = statistics.copy(), 0.0
        for means, variances in self._norms:
            now = self._now[variances]
            usual = np.float32(max(0.0, math.fsum(now.tolist()) / max(1, now.size)))
            spread = np.maximum(now, usual) + _LEAST
            away, most = _DEVIATIONS * np.sqrt(spread), _TIMES * spread
            mean, middle = statistics[means], self._now[means]
            far = np.maximum(np.abs(mean - middle) / away, statistics[variances] / most)
            if (furthest := float(far.max(initial=0))) > 1:
                beyond = max(beyond, furthest)
                found[means] = np.clip(mean, middle - away, middle + away)
                found[variances] = np.minimum(statistics[variances], most)
        return found, beyond
