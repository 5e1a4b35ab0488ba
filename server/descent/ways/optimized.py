"""Steps with an optimizer, each from one update or from several that wait for each other.
This module has the state of steps as a whole. The vectors have the state of each parameter (part.py).
"""

import math
from dataclasses import replace

import numpy as np

from edgeflock.server.descent.optimizer import Foresight, shortening
from edgeflock.server.descent.part import VectorState, gathers
from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.step import Step, Where
from edgeflock.server.descent.step_bound import StepBound, largest

_SQUARABLE = 1e15
"""The largest gradient entry that an optimizer accepts. Sums of larger squares could overflow."""


class Optimized:
    """Weighs updates, gathers them if several make a step, clips their gradient and steps."""

    def __init__(self, state: VectorState, kept: RecoverableVectors, reach: StepBound) -> None:
        """An optimizer of another kind than the state starts with zeros. Updates that wait are part of the
        next step, however many updates make a step from now on. Raises ConfigError if the optimizer is
        unknown.
        """
        self._how, self._kept, self._reach = state.regime.how, kept, reach
        known = state.memory
        self._waiting = known.waiting
        """How many updates wait for others to make a step."""
        self._gathers = gathers(state)
        self._gathered_most = 0.0 if known.gathered is None else largest(known.gathered)
        """An upper bound of the entries of the waiting updates' sum."""
        self._foresight = Foresight(self._how)
        if known.of == self._foresight.kind.remembers:
            self._foresight = Foresight(self._how, known.numbers)
        self.is_over = False

    def packed_memory(self) -> bytes | None:
        return replace(self._kept.surely(lambda: self._kept.vectors.memory), waiting=self._waiting).packed()

    def counted(self, base: int, version: int) -> int:
        """Counts steps: if several updates make a step, versions of waiting ones have not changed theta."""
        return base + max(0, -(-(version - self._waiting - base) // self._how.together))

    def changes(self, where: Where) -> Where:
        if not self._gathers:
            return where
        if self._waiting + 1 < self._how.together:
            return np.zeros(0, np.int64)
        if isinstance(where, slice):
            return where
        return np.union1d(self._kept.surely(lambda: self._kept.vectors.gathered_places()), where)

    def fits(self, step: Step, weight: float, rate: float, most: float, samples: int = 1) -> bool:
        """Also checks that the squares of the gradient stay finite."""
        how, weighs, alpha = self._how, np.float32(weight / samples), np.float32(rate)
        largest_entry = abs(float(weighs)) * largest(step.delta)
        if not largest_entry <= _SQUARABLE:
            return False
        if self._gathers:
            largest_entry = (self._gathered_most + largest_entry) / max(how.together, self._waiting + 1)
        move = self._foresight.reach(largest_entry, float(alpha), most)
        if self._reach.suffices(self._kept.largest, move, most):
            return True
        fits = self._kept.surely(
            lambda: self._kept.vectors.fits(alpha, self._prepare(step, weighs), most),
        )
        if fits:
            self._reach.take(move, most)
        return fits

    def take(self, step: Step, weight: float, rate: float, samples: int = 1) -> None:
        weighs = np.float32(weight / samples)
        largest_entry = abs(float(weighs)) * largest(step.delta)
        if self._waiting + 1 < self._how.together:
            self._kept.vectors.gather(step.where, step.delta, step.base, weighs)
            self._waiting += 1
            self._gathered_most += largest_entry
            return
        self._kept.surely(
            lambda: self._kept.vectors.step(np.float32(rate), self._prepare(step, weighs)),
        )
        self._foresight.took((self._gathered_most + largest_entry) / (self._waiting + 1))
        self._waiting, self._gathered_most = 0, 0.0
        if self._gathers and self._how.together == 1:  # the waiting updates were of an earlier regime
            self._kept.vectors.gather_no_more()
            self._gathers, self.is_over = False, self._how.is_plain

    def _prepare(self, step: Step, weighs: np.float32) -> np.float32 | None:
        """Compute the next step's gradient, waiting updates included. Return its clipping factor; None: 1."""
        vectors, clip, waiting = self._kept.vectors, self._how.clip, self._waiting + 1
        vectors.prepare(step.where, step.delta, step.base, weighs, waiting)
        if not clip or waiting < self._how.together:
            return None
        return shortening(math.sqrt(vectors.squares(0.0)), clip)
