"""Steps by an optimizer, of one update or of several that wait for each other: what is known of them as a
whole. What is remembered of each parameter is with the vectors (part.py).
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.kept import Kept
from edgeflock.server.descent.optimizer import Foresight, shortening
from edgeflock.server.descent.part import State, gathers
from edgeflock.server.descent.reach import Reach, largest
from edgeflock.server.descent.step import Step, Where

Slope = tuple[Where, NDArray[np.float32], int, np.float32]
"""(where, delta, the version that it is based on, its weight): a gradient that is not weighed yet."""

_SQUARABLE = 1e15
"""No entry of a gradient may be larger where an optimizer remembers it: squares of larger ones add up to no
number."""


class Optimized:
    """Weigh; wait for others, if several updates make a step; clip; step."""

    def __init__(self, state: State, kept: Kept, reach: Reach) -> None:
        """An optimizer that remembers something else than the memory is of begins anew; what waits for a step
        is in the next one, however many updates make one from now on. Raises ConfigError if there is no such
        optimizer.
        """
        self._how, self._kept, self._reach = state.regime.how, kept, reach
        known = state.memory
        self._waiting = known.waiting
        """How many updates wait for others to make a step with."""
        self._gathers = gathers(state)
        self._gathered_most = 0.0 if known.gathered is None else largest(known.gathered)
        """No entry of what waits is above it."""
        self._foresight = Foresight(self._how)
        if known.of == self._foresight.kind.remembers:
            self._foresight = Foresight(self._how, known.numbers)
        self.is_over = False

    def packed_memory(self) -> bytes | None:
        return replace(self._kept.surely(lambda: self._kept.vectors.memory), waiting=self._waiting).packed()

    def counted(self, base: int, version: int) -> int:
        """Where several updates make a step, a version that still waits for the others changed nothing."""
        return base + max(0, -(-(version - self._waiting - base) // self._how.together))

    def changes(self, where: Where) -> Where:
        if not self._gathers:
            return where
        if self._waiting + 1 < self._how.together:
            return np.zeros(0, np.int64)
        if isinstance(where, slice):
            return where
        return np.union1d(self._kept.surely(lambda: self._kept.vectors.gathered_places()), where)

    def bears(self, step: Step, weight: float, rate: float, most: float) -> bool:
        """The squares must stay numbers as well."""
        how, weighs, alpha = self._how, np.float32(weight), np.float32(rate)
        most_of_it = abs(float(weighs)) * largest(step.delta)
        if not most_of_it <= _SQUARABLE:
            return False
        waiting = self._waiting + 1
        if self._gathers:
            most_of_it = (self._gathered_most + most_of_it) / max(how.together, waiting)
        move = self._foresight.reach(most_of_it, float(alpha), most)
        if self._reach.suffices(self._kept.largest, move, most):
            return True
        fine = self._bears_slope((step.where, step.delta, step.base, weighs), alpha, most)
        if fine:
            self._reach.take(move, most)
        return fine

    def _bears_slope(self, slope: Slope, alpha: np.float32, most: float) -> bool:
        """The same of what `_take` would do, looked at entry by entry."""
        clip, waiting = self._how.clip, self._waiting + 1

        def tried() -> bool:
            vectors, shortened = self._kept.vectors, None
            if clip and not self._gathers:
                shortened = shortening(math.sqrt(vectors.squares_of(*slope, 0.0)), clip)
            return vectors.bears_step(*slope, alpha, most, shortened, waiting)

        return self._kept.surely(tried)

    def take(self, step: Step, weight: float, rate: float) -> None:
        weighs = np.float32(weight)
        slope = step.where, step.delta, step.base, weighs
        if self._waiting + 1 < self._how.together:
            self._kept.vectors.gather(*slope)
            self._waiting += 1
            self._gathered_most += abs(float(weighs)) * largest(step.delta)
        else:
            self._take(slope, np.float32(rate))

    def _take(self, slope: Slope, alpha: np.float32) -> None:
        """A step with this gradient, or with the mean of what waits and of it."""
        (_, delta, _, weight), how, waiting = slope, self._how, self._waiting + 1

        def take() -> None:
            vectors, shortened = self._kept.vectors, None
            if self._gathers:
                vectors.gather(*slope)
                vectors.mean(waiting)
            else:
                vectors.weigh(*slope)
            if how.clip:
                shortened = shortening(math.sqrt(vectors.squares(0.0)), how.clip)
            vectors.step(alpha, shortened)

        self._kept.surely(take)
        self._foresight.took((self._gathered_most + abs(float(weight)) * largest(delta)) / waiting)
        self._waiting, self._gathered_most = 0, 0.0
        if self._gathers and how.together == 1:  # what waited was of a regime before
            self._kept.vectors.gather_no_more()
            self._gathers, self.is_over = False, how.is_plain

    def bears_sum(
        self, where: Where, total: NDArray[np.float32], samples: int, scale: float, rate: float, most: float
    ) -> bool:
        total *= _share(samples, scale)
        if not largest(total) <= _SQUARABLE:
            return False
        alpha = np.float32(rate)
        return self._kept.surely(lambda: self._kept.vectors.bears_gradient(where, total, alpha, most))

    def bears_round(self, gathered: Gathered, base: int, scale: float, rate: float, most: float) -> bool:
        return self._bears_slope(_slope(gathered, base, scale), np.float32(rate), most)

    def take_round(self, gathered: Gathered, base: int, scale: float, rate: float) -> None:
        self._take(_slope(gathered, base, scale), np.float32(rate))


def _slope(gathered: Gathered, base: int, scale: float) -> Slope:
    """The gradient of a round, of which every parameter has an entry, none of them stale."""
    return slice(None), gathered.total, base, _share(gathered.samples, scale)


def _share(samples: int, scale: float) -> np.float32:
    """What a round's sum is multiplied with to be its gradient."""
    return np.float32(scale / samples)
