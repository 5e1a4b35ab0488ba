"""Checks before a step is taken that all parameters stay finite and within a bound."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.kernels import largest_bits

Vector = NDArray[np.float32]

_ROUNDING = 1 + 1e-6
"""A factor that covers the two roundings of a step."""


def within(before: Vector, after: Vector, most: float) -> bool:
    """Whether no entry exceeds `most` in magnitude. Entries beyond `most` before must not move further away.

    NaN and infinity are beyond every bound.
    """
    if largest(after) <= most:  # one pass, without a temporary array
        return True
    return bool((np.abs(after) <= np.maximum(np.float32(most), np.abs(before))).all())


def largest(vector: Vector) -> float:
    """Return the largest magnitude in `vector`."""
    return float(np.uint32(largest_bits(vector)).view(np.float32))


class StepBound:
    """An upper bound of the parameters' magnitudes, without reading them at every step. A step moves no
    parameter by more than the step's largest entry.
    """

    def __init__(self) -> None:
        self._farthest = self._walked = math.inf
        """`_walked` is the sum of the moves since the parameters were last read."""

    def suffices(self, look: Callable[[], float], move: float, most: float) -> bool:
        """Whether a step that moves no parameter by more than `move` certainly takes none beyond `most`. If
        so, the step is recorded as taken.

        `look` returns the largest magnitude. It is called only after steps add up to a quarter of `most`, so
        that no device can force frequent calls.
        """
        if not self._farthest + move <= most and self._walked > most / 4:
            self._farthest, self._walked = look(), 0.0
        if not (self._farthest + move) * _ROUNDING <= most:
            return False
        self._farthest = (self._farthest + move) * _ROUNDING
        self._walked += move
        return True

    def take(self, move: float, most: float) -> None:
        """Record a step that was checked entry by entry: it takes no parameter beyond `most`."""
        self._farthest = max(self._farthest, most)
        self._walked += move
