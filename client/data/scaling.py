"""Scales a stream's inputs by robust statistics: the median and the interquartile range.

    x' = clip((x - median) / (interquartile range / 1.349), -10, 10)

for each number of a sample separately, over the last samples. With the factor 1.349 the unit is 1 standard
deviation for normal numbers. If up to a quarter of the samples are arbitrary, both quartiles stay in the
range of the others.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

WINDOW = 256
"""Number of last samples in the statistics; fewer, but"""
MIN_WINDOW = 32
"""at least this many, if they take more bytes than"""
WINDOW_BYTES = 1 << 22

CLIP = 10.0
"""Clipping bound, in units of spread: broken numbers that pass the checks do not dominate a gradient."""

_NORMAL = 1.349
"""The interquartile range of the normal distribution, in standard deviations."""

_CONSTANT = 1e-6
"""A number whose spread is below this fraction of its median is (mostly) constant and keeps its unit."""

_RENEWAL = 8
"""The quartiles are recomputed when one in this many samples is new."""


class Units(Protocol):
    """Scales inputs."""

    def learn(self, x: NDArray[np.float32]) -> None:
        """Update the statistics with the next samples, x [n, ...], finite. All samples have one shape."""

    def scale(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return x [n, ...] scaled for training. `learn` must have been called."""


class Scaling:
    """Scales the samples of one stream. Only the last WINDOW samples count, so it follows changes."""

    def __init__(self) -> None:
        self._window: NDArray[np.float32] = np.zeros((0, 0), np.float32)
        """[rows, numbers of a sample]: the last samples, unordered."""
        self._seen = 0
        self._new = 0
        """Samples since the quartiles were computed."""
        self._median = self._spread = np.zeros(0)

    def learn(self, x: NDArray[np.float32]) -> None:
        if not len(x):
            return
        flat = x.reshape(len(x), -1)
        if not self._window.size:
            rows = min(WINDOW, max(MIN_WINDOW, WINDOW_BYTES // max(1, 4 * flat.shape[1])))
            self._window = np.zeros((rows, flat.shape[1]), np.float32)
        rows = len(self._window)
        last = flat[-rows:]
        self._window[(self._seen + np.arange(len(flat) - len(last), len(flat))) % rows] = last
        self._seen += len(flat)
        self._new += len(flat)
        if self._new * _RENEWAL >= min(self._seen, rows):
            self._renew()

    def scale(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        flat = x.reshape(len(x), -1).astype(np.float64)
        units = np.clip((flat - self._median) / self._spread, -CLIP, CLIP)
        return np.asarray(units.astype(np.float32).reshape(x.shape))

    def _renew(self) -> None:
        ranked = np.sort(np.ascontiguousarray(self._window[: self._seen].T)).astype(np.float64)
        last = ranked.shape[1] - 1
        self._median = (ranked[:, last // 2] + ranked[:, -(-last // 2)]) / 2
        spread = (ranked[:, -(-3 * last // 4)] - ranked[:, last // 4]) / _NORMAL
        self._spread = np.where(spread > _CONSTANT * np.abs(self._median), spread, 1.0)
        self._new = 0
