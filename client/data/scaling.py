"""Converts a stream's samples to the run's units and categories, or scales them by robust statistics.

    x' = clip((x - median) / (interquartile range / 1.349), -10, 10)

for each number of a sample separately, over the last samples. With the factor 1.349 the unit is 1 standard
deviation for normal numbers. If up to a quarter of the samples are arbitrary, both quartiles stay in the
range of the others.
"""

import logging

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.data.checks import set_aside
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.shared.data.columns import features
from edgeflock.shared.data.fitting import scale_targets
from edgeflock.shared.data.texts import ABSENT, are_codes, check_codes, places_of
from edgeflock.shared.model.description import Description

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
        """Update the statistics with the next samples, x [n, ...], finite. All samples have one shape."""
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
        """Return x [n, ...] scaled for training. `learn` must have been called."""
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


log = logging.getLogger(__name__)


class SampleDescription:
    """The run's description of samples, applied to a stream."""

    def __init__(self, description: Description) -> None:
        """Raises ConfigError if two categories of a column have the same code."""
        self._description = description
        self._warned: set[str] = set()
        for column, names in zip(description.columns, description.categories, strict=False):
            check_codes(column, names)

    def convert(self, chunk: StreamChunk, tally: Skipped) -> StreamChunk:
        """Convert x [n, columns], with codes of texts, to the model's inputs, and y to the run's units.

        Samples with a text or a missing number are set aside if the run has no category or mean for it.
        """
        description, x = self._description, chunk.x
        categories = description.categories
        if x.ndim == 2 and (are_codes(x).any() or categories):
            codes = are_codes(x)
            if description.means:  # a missing number becomes the mean
                codes &= x != ABSENT
            for column, names in enumerate(categories):
                codes[:, column] &= not names
            unfit = np.asarray(codes.any(axis=1))
            if unfit.any():
                column = int(np.flatnonzero(codes.any(axis=0))[0])
                named = (
                    description.columns[column] if column < len(description.columns) else f"number {column}"
                )
                detail = f"{named} of x is a text, or missing, and the run has neither categories nor a mean"
                set_aside(chunk, unfit, "not numbers", detail, tally)
                chunk = chunk.select(~unfit)
                x = chunk.x
        if len(chunk) and (description.means or categories):
            x = self._in_units(x.astype(np.float32, copy=False))
        y = chunk.y
        if description.numbers:
            y = scale_targets(y, description)
        return StreamChunk(x, y, chunk.keys)

    def _in_units(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        description, places = self._description, {}
        for column, names in enumerate(description.categories):
            if names:
                places[column] = places_of(x[:, column], names)
                if (places[column] < 0).any():
                    self._warn(description.columns[column])
        numbers: NDArray[np.float64] = np.where(are_codes(x), np.nan, x.astype(np.float64))
        return features(numbers, places, description)

    def _warn(self, column: str) -> None:
        """Warn once for each column."""
        if column not in self._warned:
            self._warned.add(column)
            log.warning(
                "%s of some samples is missing, or a category that the run does not know: it counts as none "
                "of the run's categories (warned once a column)",
                column,
            )
