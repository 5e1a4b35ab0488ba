"""Where a step would lead, looked at before it is taken: a parameter stays a number that a model can have."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.kernels import largest_bits

Vector = NDArray[np.float32]

_ROUNDING = 1 + 1e-6
"""More than a step's two roundings add."""


def within(before: Vector, after: Vector, most: float) -> bool:
    """Whether nothing goes beyond `most` in magnitude, or, of what is beyond it already, further.

    NaN and infinity are beyond everything.
    """
    if largest(after) <= most:  # one look at each entry, and nothing is made for it
        return True
    return bool((np.abs(after) <= np.maximum(np.float32(most), np.abs(before))).all())


def largest(vector: Vector) -> float:
    """The largest magnitude in it."""
    return float(np.uint32(largest_bits(vector)).view(np.float32))


class StepBound:
    """How far from zero the parameters can be by now, known without looking at them at every step: no step
    takes them further than its largest entry.
    """

    def __init__(self) -> None:
        self._farthest = self._walked = math.inf
        """`_walked` is what steps add up to since the parameters were looked at."""

    def suffices(self, look: Callable[[], float], move: float, most: float) -> bool:
        """Whether a step that moves no parameter by more than `move` surely takes none beyond `most`. It
        counts as taken then.

        `look` finds the largest of them: it is called only once steps add up to a quarter of `most`, whoever
        sends them.
        """
        if not self._farthest + move <= most and self._walked > most / 4:
            self._farthest, self._walked = look(), 0.0
        if not (self._farthest + move) * _ROUNDING <= most:
            return False
        self._farthest = (self._farthest + move) * _ROUNDING
        self._walked += move
        return True

    def take(self, move: float, most: float) -> None:
        """A step was taken that was found to take none beyond `most`, entry by entry."""
        self._farthest = max(self._farthest, most)
        self._walked += move
