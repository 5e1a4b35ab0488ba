"""Running statistics: how they follow those of devices' batches, and how far those of one update may be."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

FREE, LIMITED = "free", "limited"
"""`StepMethod.statistics`: an update's statistics count as they are, or as `Running.limited` leaves them."""

_DEVIATIONS = np.float32(2)
"""A mean counts as at most so many standard deviations away."""

_TIMES = np.float32(2)
"""A variance counts as at most so many times as large. By two, what one device in ten adds is less than what
the other nine take away, however often it comes: so it is while the honest ones are more than half."""

_LEAST = np.float32(1e-5)
"""Added to each variance, as BatchNorm does."""


def follow(running: Vector, statistics: Vector, lag: int) -> None:
    """b <- b + (s - b) / lag, in place."""
    running += (statistics - running) / np.float32(lag)


class Running:
    """The running statistics of a version, and of which layers they are."""

    def __init__(self, now: Vector, norms: Sequence[tuple[slice, slice]]) -> None:
        """`now` are float32 [B]; `norms` as Layout.norms."""
        self._now = now.copy()
        self._norms = norms

    def follow(self, statistics: Vector, lag: int) -> None:
        """As theta's own do."""
        follow(self._now, statistics, lag)

    def limited(self, statistics: Vector) -> tuple[Vector, float]:
        """(s', how many times further than may count s went), for the statistics s of an update.

        With a layer's running means m and variances v, and for each channel w = max(v, mean of v) + 1e-5:

            s'_mean = s_mean, at least m - 2 sqrt(w), at most m + 2 sqrt(w)
            s'_var  = s_var, at most 2 w

        A channel that is alive in the data of few devices alone has a small v of its own, and w of its layer.
        In float32, and the mean exact before it is rounded: the same bits on every machine.
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
