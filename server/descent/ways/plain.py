"""theta - rate g, in one pass: how theta moves where no optimizer steps."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.kept import Kept
from edgeflock.server.descent.reach import Reach, largest
from edgeflock.server.descent.step import Step, Where


class Plain:
    """Remembers nothing: each update is a step."""

    is_over = False

    def __init__(self, kept: Kept, reach: Reach) -> None:
        self._kept, self._reach = kept, reach

    def packed_memory(self) -> None:
        """There is none."""

    def counted(self, base: int, version: int) -> int:
        return version

    def changes(self, where: Where) -> Where:
        return where

    def bears(self, step: Step, weight: float, rate: float, most: float) -> bool:
        alpha = np.float32(rate * weight)
        move = abs(float(alpha)) * largest(step.delta)
        if self._reach.suffices(self._kept.largest, move, most):
            return True
        fine = self._kept.surely(
            lambda: self._kept.vectors.bears(step.where, step.delta, step.base, alpha, most)
        )
        if fine:
            self._reach.take(move, most)
        return fine

    def take(self, step: Step, weight: float, rate: float) -> None:
        self._kept.vectors.descend(step.where, step.delta, step.base, np.float32(rate * weight))

    def bears_sum(
        self, where: Where, total: NDArray[np.float32], samples: int, scale: float, rate: float, most: float
    ) -> bool:
        total *= _alpha(samples, scale, rate)
        return self._kept.surely(lambda: self._kept.vectors.bears_move(where, total, most))

    def bears_round(self, gathered: Gathered, base: int, scale: float, rate: float, most: float) -> bool:
        by = _alpha(gathered.samples, scale, rate) * gathered.total
        return self._kept.surely(lambda: self._kept.vectors.bears_move(slice(None), by, most))

    def take_round(self, gathered: Gathered, base: int, scale: float, rate: float) -> None:
        self._kept.vectors.move(_alpha(gathered.samples, scale, rate) * gathered.total)


def _alpha(samples: int, scale: float, rate: float) -> np.float32:
    """The learning rate of a round's sum, which is not divided by its samples yet."""
    return np.float32(rate * scale / samples)
