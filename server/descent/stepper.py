"""Steps as a whole: each from one update, from several that wait for each other, or from a round.

The vectors have the state of each parameter (part.py). Here are the number of waiting updates, and upper
bounds of how far steps move the parameters, which save reading all of them at every step.
"""

import math
from dataclasses import replace

import numpy as np

from edgeflock.server.descent.kernels import max_magnitude
from edgeflock.server.descent.optimizer import MoveBound, clip_factor
from edgeflock.server.descent.part import VectorState
from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.step import Index, Step

_SQUARABLE = 1e15
"""The largest gradient entry that an optimizer accepts. Sums of larger squares could overflow."""

_ONE = np.float32(1)


class Stepper:
    """Weighs updates, gathers them if several make a step, clips their gradient and steps.

    `weight` is the weight of an update without the per-parameter staleness, and `rate` the current learning
    rate. The sum of a round is also a step: it is divided by its `samples`.
    """

    def __init__(self, state: VectorState, store: RecoverableVectors) -> None:
        """Updates that wait are part of the next step, however many updates make a step from now on.

        Raises ConfigError if the optimizer is unknown.
        """
        self._method, self._store = state.regime.method, store
        self.unit = self._method.unit
        """How many updates staleness counts as one (StepMethod.unit)."""
        self._bound = MoveBound(state.regime.method, state.memory)
        self._is_plain = state.is_plain
        """Whether a step is just theta - rate g."""
        self._is_gathering, self._waiting = state.is_gathering, state.memory.waiting
        """Whether updates wait for others to make a step, and how many do."""

    def packed_memory(self, noise: bytes = b"") -> bytes | None:
        """Encode the optimizer's state and that of the noise; None if there is none."""
        memory = self._store.retry(lambda: self._store.vectors.memory)
        return replace(memory, waiting=self._waiting, noise=noise).pack()

    @property
    def waiting(self) -> int:
        """How many updates wait for others to make a step."""
        return self._waiting

    @property
    def is_completing(self) -> bool:
        """Whether the next update makes a step."""
        return self._waiting + 1 >= self._method.together

    def steps_since(self, base: int, version: int) -> int:
        """Return how often theta changed from version `base` to `version`.

        Versions of updates that wait have not changed it.
        """
        return max(0, -(-(version - self._waiting - base) // self._method.together))

    def changed_indices(self, indices: Index) -> Index:
        """Return the parameters that the next version changes, if its update touches `indices`."""
        if not self._is_gathering:
            return indices
        if self._waiting + 1 < self._method.together:
            return np.zeros(0, np.int64)
        if isinstance(indices, slice):
            return indices
        return np.union1d(self._store.retry(lambda: self._store.vectors.gathered_indices()), indices)

    def fits(self, step: Step, weight: float, rate: float, limit: float, samples: int = 1) -> bool:
        """Whether `take` leaves every trained parameter finite and at most `limit` in magnitude.

        One beyond `limit` before must not move further away. The squares of an optimizer's gradient must stay
        finite, too.
        """
        factor, rest = self._factors(weight, rate, samples)
        return self._fits(step, factor, rest, abs(float(factor)) * max_magnitude(step.delta), limit)

    def _fits(self, step: Step, factor: np.float32, rest: np.float32, entry: float, limit: float) -> bool:
        """`fits`, where the largest |entry| of the weighed step is `entry`."""
        move = entry
        if not self._is_plain:
            if not entry <= _SQUARABLE:
                return False
            move = self._bound.max_move(entry, float(rest), limit, self._waiting + 1)
        if self._bound.is_enough(self._max_magnitude, move, limit):
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            fits = self._store.retry(lambda: self._store.vectors.fits(rest, self._weigh(step, factor), limit))
        if fits:
            self._bound.record_checked(move, limit)
        return fits

    def take(self, step: Step, weight: float, rate: float, samples: int = 1, limit: float = math.inf) -> bool:
        """Apply the step, or add it to the waiting updates. If it does not fit, change nothing: False."""
        factor, rest = self._factors(weight, rate, samples)
        entry = abs(float(factor)) * max_magnitude(step.delta)
        if limit < math.inf and not self._fits(step, factor, rest, entry, limit):
            return False
        waiting, together = self._waiting + 1, self._method.together
        if not self._is_plain:
            self._bound.record(entry, waiting)
        if self._is_plain or waiting < together:
            self._store.vectors.descend(step.indices, step.delta, step.base, factor, self.unit)
            self._waiting = waiting % together
            return True
        self._store.retry(lambda: self._store.vectors.step(rest, self._weigh(step, factor)))
        self._waiting = 0
        if together == 1:  # updates that waited were of an earlier regime
            self._is_gathering, self._is_plain = False, self._method.is_plain
        return True

    def _factors(self, weight: float, rate: float, samples: int) -> tuple[np.float32, np.float32]:
        """Return the weight of a step's entries, and the rate of the step."""
        if self._is_plain:
            return np.float32(rate * weight / samples), _ONE
        return np.float32(weight / samples), np.float32(rate)

    def _weigh(self, step: Step, factor: np.float32) -> np.float32 | None:
        """Compute the next step's gradient, waiting updates included. Return its clipping factor; None: 1."""
        vectors, clip, waiting = self._store.vectors, self._method.clip, self._waiting + 1
        vectors.weigh(step.indices, step.delta, step.base, factor, self.unit, waiting)
        if not clip or waiting < self._method.together:
            return None
        return clip_factor(math.sqrt(vectors.squares(0.0)), clip)

    def _max_magnitude(self) -> float:
        return self._store.retry(lambda: self._store.vectors.max_magnitude())
