"""Plain steps without an optimizer: theta - rate g, in one pass."""

import numpy as np

from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.step import Step, Where
from edgeflock.server.descent.step_bound import StepBound, largest


class Plain:
    """Applies each update as a step. It has no state."""

    is_over = False

    def __init__(self, kept: RecoverableVectors, reach: StepBound) -> None:
        self._kept, self._reach = kept, reach

    def packed_memory(self) -> None:
        """Return None: there is no state."""

    def counted(self, base: int, version: int) -> int:
        return version

    def changes(self, where: Where) -> Where:
        return where

    def fits(self, step: Step, weight: float, rate: float, most: float, samples: int = 1) -> bool:
        alpha = np.float32(rate * weight / samples)
        move = abs(float(alpha)) * largest(step.delta)
        if self._reach.suffices(self._kept.largest, move, most):
            return True

        def tried() -> bool:
            self._kept.vectors.prepare(step.where, step.delta, step.base, alpha, 1)
            return self._kept.vectors.fits(np.float32(1), None, most)

        fits = self._kept.surely(tried)
        if fits:
            self._reach.take(move, most)
        return fits

    def take(self, step: Step, weight: float, rate: float, samples: int = 1) -> None:
        alpha = np.float32(rate * weight / samples)
        self._kept.vectors.descend(step.where, step.delta, step.base, alpha)
