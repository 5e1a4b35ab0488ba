"""Converts a stream's samples to the run's units and categories."""

import logging

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.data.checks import set_aside
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.shared.data.columns import features
from edgeflock.shared.data.fitting import scale_targets
from edgeflock.shared.data.texts import ABSENT, are_codes, check_codes, places_of
from edgeflock.shared.model.description import Description

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
