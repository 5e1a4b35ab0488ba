"""Inputs of a stream in units of their own: how far each number is from its usual, in how far it usually is.

    x' = clip((x - median) / (interquartile range / 1.349), -10, 10)

for each number of a sample by itself, over the last samples; 1.349 makes that 1 standard deviation where
numbers are normal. Up to a quarter of the samples may be anything, and neither quartile leaves the range of
the others.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

KEPT = 256
"""Samples that say what is usual, the last ones; fewer, but"""
LEAST_KEPT = 32
"""at least so many, if they take more than"""
KEPT_BYTES = 1 << 22

CLIP = 10.0
"""Beyond so many spreads all is one: broken numbers within the checks' range swamp no gradient."""

_NORMAL = 1.349
"""The interquartile range of the normal distribution, in standard deviations."""

_CONSTANT = 1e-6
"""A number that spreads by less than this part of its median is constant but for rounding, or mostly so: it
keeps its unit."""

_RENEWED = 8
"""The quartiles are taken anew once one in so many samples is new."""


class Units(Protocol):
    """What inputs are brought to."""

    def learn(self, x: NDArray[np.float32]) -> None:
        """x [n, ...], finite, is what came next. All samples are of one shape."""

    def scaled(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """x [n, ...] as it is to be trained on; something has been learnt."""


class Scaling:
    """Of the samples of one stream. It follows it: whatever was before the last KEPT samples is forgotten."""

    def __init__(self) -> None:
        self._kept: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        """[rows, numbers of a sample]: the last samples, in no order."""
        self._seen = 0
        self._new = 0
        """Samples since the quartiles were taken."""
        self._median = self._spread = np.zeros(0)

    def learn(self, x: NDArray[np.float32]) -> None:
        if not len(x):
            return
        flat = x.reshape(len(x), -1)
        if not self._kept.size:
            rows = min(KEPT, max(LEAST_KEPT, KEPT_BYTES // max(1, 4 * flat.shape[1])))
            self._kept = np.zeros((rows, flat.shape[1]), np.float32)
        rows = len(self._kept)
        last = flat[-rows:]
        self._kept[(self._seen + np.arange(len(flat) - len(last), len(flat))) % rows] = last
        self._seen += len(flat)
        self._new += len(flat)
        if self._new * _RENEWED >= min(self._seen, rows):
            self._renew()

    def scaled(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        flat = x.reshape(len(x), -1).astype(np.float64)
        units = np.clip((flat - self._median) / self._spread, -CLIP, CLIP)
        return np.asarray(units.astype(np.float32).reshape(x.shape))

    def _renew(self) -> None:
        ranked = np.sort(np.ascontiguousarray(self._kept[: self._seen].T)).astype(np.float64)
        last = ranked.shape[1] - 1
        self._median = (ranked[:, last // 2] + ranked[:, -(-last // 2)]) / 2
        spread = (ranked[:, -(-3 * last // 4)] - ranked[:, last // 4]) / _NORMAL
        self._spread = np.where(spread > _CONSTANT * np.abs(self._median), spread, 1.0)
        self._new = 0
