"""Plain steps without an optimizer: theta - rate g, in one pass."""

import numpy as np

from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.step_bound import StepBound, max_magnitude


class Plain:
    """Applies each update as a step. It has no state."""

    is_finished = False

    def __init__(self, store: RecoverableVectors, bound: StepBound) -> None:
        self._store, self._bound = store, bound

    def packed_memory(self) -> None:
        """Return None: there is no state."""

    def effective_base(self, base: int, version: int) -> int:
        return version

    def changed_indices(self, indices: Index) -> Index:
        return indices

    def fits(self, step: Step, weight: float, rate: float, limit: float, samples: int = 1) -> bool:
        alpha = np.float32(rate * weight / samples)
        move = abs(float(alpha)) * max_magnitude(step.delta)
        if self._bound.is_enough(self._store.max_magnitude, move, limit):
            return True

        def tried() -> bool:
            self._store.vectors.prepare(step.indices, step.delta, step.base, alpha, 1)
            return self._store.vectors.fits(np.float32(1), None, limit)

        fits = self._store.retry(tried)
        if fits:
            self._bound.take(move, limit)
        return fits

    def take(self, step: Step, weight: float, rate: float, samples: int = 1) -> None:
        alpha = np.float32(rate * weight / samples)
        self._store.vectors.descend(step.indices, step.delta, step.base, alpha)
