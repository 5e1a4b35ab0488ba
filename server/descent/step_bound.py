"""Checks before a step is taken that all parameters stay finite and within a bound."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.kernels import largest_bits

Vector = NDArray[np.float32]

_ROUNDING = 1 + 1e-6
"""A factor that covers the two roundings of a step."""


def is_within(before: Vector, after: Vector, limit: float) -> bool:
    """Whether no entry exceeds `limit` in magnitude. One beyond `limit` before must not move further away.

    NaN and infinity are beyond every bound.
    """
    if max_magnitude(after) <= limit:  # one pass, without a temporary array
        return True
    return bool((np.abs(after) <= np.maximum(np.float32(limit), np.abs(before))).all())


def max_magnitude(vector: Vector) -> float:
    """Return the largest magnitude in `vector`."""
    return float(np.uint32(largest_bits(vector)).view(np.float32))


class StepBound:
    """An upper bound of the parameters' magnitudes, without reading them at every step.

    A step moves no parameter by more than the step's largest entry.
    """

    def __init__(self) -> None:
        self._largest = self._moved = math.inf
        """`_moved` is the sum of the moves since the parameters were last read."""

    def is_enough(self, read: Callable[[], float], move: float, limit: float) -> bool:
        """Whether a step that moves no parameter by more than `move` certainly takes none beyond `limit`.

        If so, the step is recorded as taken.

        `read` returns the largest magnitude. It is called only after steps add up to a quarter of `limit`, so
        that no device can force frequent calls.
        """
        if not self._largest + move <= limit and self._moved > limit / 4:
            self._largest, self._moved = read(), 0.0
        if not (self._largest + move) * _ROUNDING <= limit:
            return False
        self._largest = (self._largest + move) * _ROUNDING
        self._moved += move
        return True

    def take(self, move: float, limit: float) -> None:
        """Record a step that was checked entry by entry: it takes no parameter beyond `limit`."""
        self._largest = max(self._largest, limit)
        self._moved += move
