"""Thresholds for lossy differences: one a tensor, which adapts to the number of entries that it passes.

The tensors share a step by the root of their sizes. On average, a step has a given
fraction of the parameters. It has more if that removes less than a target share of |theta - B|^2.

The target follows from a bound on the age of a device's copy B. A step that removes the share s leaves 1 - s.
So B lags (1 - s) / s steps behind, of `interval` versions each. It lags no more than `lag` versions for

    s = interval / (interval + lag)

With few devices, steps are short and need a small share; with many, a large one. A given share bounds s.

Early versions change the model most. So `lag` is at most v / 10 at version v.

A device that comes rarely gets nearly all of what it lacks: it trains seldom, so it must not train an old
model. That costs few bytes, since it comes rarely.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

_GAIN = 0.1
"""A threshold changes by at most a tenth a step."""

_FRACTION_GAIN = 0.02
"""The fraction changes by at most a fiftieth a step: its effect takes several steps of every device."""

_FIRST_STEPS = 50
"""In so many first steps it changes by up to a tenth, since it begins small. Then it slows down."""

_INTERVAL_GAIN = 0.02
"""The weight of the last interval in the average."""

_MAX_AGE = 0.1
"""The most versions that a copy may lag, as a part of those of the model."""

_MAX_FRACTION = 0.25
"""The largest fraction that is reached by adaptation."""

_MAX_INTERVAL = 1024
"""The most versions between two steps of a device that are counted."""

_RARE = 5
"""An interval of more than five times the average is rare, once"""
_FEWEST = 20
"""so many steps have been counted."""

RARE_SHARE = 0.98
"""The part of |theta - B|^2 that a step after a rare interval should remove."""


class Thresholds:
    """The thresholds of one run, the same for all devices."""

    def __init__(self, layout: Layout, fraction: float, share: float, lag: int = 0) -> None:
        """`layout` is that of the P trained parameters. The target share is at most `share`.

        A step has a `fraction` of them, and more if needed to keep the lag within `lag` versions.
        """
        self._bounds = layout.bounds
        self._share, self.lag = share, lag
        self._interval = 0.0
        """The moving average of the versions between two steps of a device, which begins at 0."""
        self._intervals = 0
        """The number of steps that it counts."""
        self._fraction = self._minimum = fraction
        sizes = np.diff(layout.bounds).astype(np.float64)
        weights = np.where(sizes > 0, np.sqrt(sizes), 0.0)
        self._shares = layout.size * weights / weights.sum()
        self.values: NDArray[np.float32] = np.zeros(sizes.size, np.float32)
        """float32 [T]; 0: the tensor has no threshold yet."""

    def reset(self) -> None:
        """Reset, as if nothing had been sent yet."""
        self._fraction = self._minimum
        self._interval, self._intervals = 0.0, 0
        self.values[:] = 0

    def target(self, version: int) -> float:
        """The share of |theta - B|^2 that a step to `version` should remove."""
        if not self.lag:
            return self._share
        interval, lag = self._average_interval, min(self.lag, max(1.0, _MAX_AGE * version))
        return min(self._share, interval / (interval + lag))

    def is_rare(self, interval: int) -> bool:
        """Whether `interval` versions between two steps of a device are far more than the average."""
        return bool(self.lag) and self._intervals >= _FEWEST and interval > _RARE * self._average_interval

    @property
    def _average_interval(self) -> float:
        counted = 1 - (1 - _INTERVAL_GAIN) ** self._intervals
        return self._interval / counted if counted else 0.0

    @property
    def quota(self) -> float:
        """The number of entries of a usual step."""
        return float(self._fraction * self._shares.sum())

    def begin(self, counts: NDArray[np.int64], theta: NDArray[np.float32], copy: NDArray[np.float32]) -> bool:
        """Set missing thresholds. Return whether any was set.

        counts[t] entries of tensor t differ; up to its share of a step, it needs no threshold. A new one
        passes this share of the largest entries of |theta - replica| (both float32 [P]).
        """
        if self.values.all():
            return False
        wanted = np.ceil(self._fraction * self._shares).astype(np.int64)
        beginning = np.flatnonzero((self.values == 0) & (counts > wanted)).tolist()
        for tensor in beginning:
            part = slice(self._bounds[tensor], self._bounds[tensor + 1])
            differences = np.abs(theta[part] - copy[part])
            last = differences.size - 1 - int(wanted[tensor])
            self.values[tensor] = np.partition(differences, last)[last]
        return bool(beginning)

    def rise(self) -> None:
        """Raise the thresholds after a step with many times the usual entries."""
        self.values *= np.float32(np.exp(_GAIN))

    def follow(self, interval: int) -> None:
        """Count the `interval` of a step."""
        self._interval += _INTERVAL_GAIN * (min(interval, _MAX_INTERVAL) - self._interval)
        self._intervals += 1

    def adapt(
        self, counts: NDArray[np.int64], error: float, remaining: float, interval: int = 0, version: int = 0
    ) -> None:
        """Adapt to a step to `version` with counts[t] entries of tensor t.

        It is `interval` versions after the one before, and reduced |theta - B|^2 from `error` to `remaining`.
        """
        self.follow(interval)
        target = self.target(version)
        wanted = self._fraction * self._shares
        excess = np.minimum(np.maximum((counts - wanted) / np.maximum(wanted, 1), -1), 1)
        self.values *= np.exp(_GAIN * excess).astype(np.float32)
        if target and 0 < error < math.inf and math.isfinite(remaining):
            short = min(max((target - (1 - remaining / error)) / target, -1), 1)
            gain = max(_FRACTION_GAIN, _GAIN * min(1.0, _FIRST_STEPS / self._intervals))
            fraction = self._fraction * math.exp(gain * short)
            self._fraction = min(max(fraction, self._minimum), max(self._minimum, _MAX_FRACTION))
