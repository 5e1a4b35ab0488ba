"""Steps with an optimizer, each from one update or from several that wait for each other.

This module has the state of steps as a whole. The vectors have the state of each parameter (part.py).
"""

import math
from dataclasses import replace

import numpy as np

from edgeflock.server.descent.optimizer import MoveBound, clip_factor
from edgeflock.server.descent.part import VectorState, needs_gathering
from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.step_bound import StepBound, max_magnitude

_SQUARABLE = 1e15
"""The largest gradient entry that an optimizer accepts. Sums of larger squares could overflow."""


class Optimized:
    """Weighs updates, gathers them if several make a step, clips their gradient and steps."""

    def __init__(self, state: VectorState, store: RecoverableVectors, bound: StepBound) -> None:
        """An optimizer of another kind than the state starts with zeros.

        Updates that wait are part of the next step, however many updates make a step from now on. Raises
        ConfigError if the optimizer is unknown.
        """
        self._method, self._store, self._bound = state.regime.method, store, bound
        memory = state.memory
        self._waiting = memory.waiting
        """How many updates wait for others to make a step."""
        self._is_gathering = needs_gathering(state)
        self._gathered_limit = 0.0 if memory.gathered is None else max_magnitude(memory.gathered)
        """An upper bound of the entries of the waiting updates' sum."""
        self._move_bound = MoveBound(self._method)
        if memory.kind == self._move_bound.kind.state:
            self._move_bound = MoveBound(self._method, memory.numbers)
        self.is_finished = False

    def packed_memory(self) -> bytes | None:
        return replace(self._store.retry(lambda: self._store.vectors.memory), waiting=self._waiting).pack()

    def effective_base(self, base: int, version: int) -> int:
        """Counts steps: if several updates make a step, versions of waiting ones have not changed theta."""
        return base + max(0, -(-(version - self._waiting - base) // self._method.together))

    def changed_indices(self, indices: Index) -> Index:
        if not self._is_gathering:
            return indices
        if self._waiting + 1 < self._method.together:
            return np.zeros(0, np.int64)
        if isinstance(indices, slice):
            return indices
        return np.union1d(self._store.retry(lambda: self._store.vectors.gathered_indices()), indices)

    def fits(self, step: Step, weight: float, rate: float, limit: float, samples: int = 1) -> bool:
        """Also checks that the squares of the gradient stay finite."""
        method, factor, alpha = self._method, np.float32(weight / samples), np.float32(rate)
        largest_entry = abs(float(factor)) * max_magnitude(step.delta)
        if not largest_entry <= _SQUARABLE:
            return False
        if self._is_gathering:
            largest_entry = (self._gathered_limit + largest_entry) / max(method.together, self._waiting + 1)
        move = self._move_bound.max_move(largest_entry, float(alpha), limit)
        if self._bound.is_enough(self._store.max_magnitude, move, limit):
            return True
        fits = self._store.retry(
            lambda: self._store.vectors.fits(alpha, self._prepare(step, factor), limit),
        )
        if fits:
            self._bound.take(move, limit)
        return fits

    def take(self, step: Step, weight: float, rate: float, samples: int = 1) -> None:
        factor = np.float32(weight / samples)
        largest_entry = abs(float(factor)) * max_magnitude(step.delta)
        if self._waiting + 1 < self._method.together:
            self._store.vectors.gather(step.indices, step.delta, step.base, factor)
            self._waiting += 1
            self._gathered_limit += largest_entry
            return
        self._store.retry(
            lambda: self._store.vectors.step(np.float32(rate), self._prepare(step, factor)),
        )
        self._move_bound.record((self._gathered_limit + largest_entry) / (self._waiting + 1))
        self._waiting, self._gathered_limit = 0, 0.0
        if self._is_gathering and self._method.together == 1:  # the waiting updates were of an earlier regime
            self._store.vectors.stop_gathering()
            self._is_gathering, self.is_finished = False, self._method.is_plain

    def _prepare(self, step: Step, factor: np.float32) -> np.float32 | None:
        """Compute the next step's gradient, waiting updates included. Return its clipping factor; None: 1."""
        vectors, clip, waiting = self._store.vectors, self._method.clip, self._waiting + 1
        vectors.prepare(step.indices, step.delta, step.base, factor, waiting)
        if not clip or waiting < self._method.together:
            return None
        return clip_factor(math.sqrt(vectors.squares(0.0)), clip)
