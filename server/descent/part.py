"""A contiguous slice of theta, or all of it, and what steps need of each of its parameters.

What is known of steps as a whole (versions, weights, rates, norms) is parameters.py's and its way's (ways/),
which say what is to be done here: so that a slice may lie in a process of its own (server/shards).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import steps
from edgeflock.server.descent.kernels import approach
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.descent.optimizer import Optimizer, descend
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.staleness import Staleness
from edgeflock.server.descent.statistics import follow
from edgeflock.server.descent.step import Step, Where
from edgeflock.server.descent.step_bound import largest, within
from edgeflock.server.descent.weighting import rule

Vector = NDArray[np.float32]


class Entries(Protocol):
    """theta, to be read at some places, or as a whole by [:]."""

    @property
    def size(self) -> int: ...

    def __getitem__(self, where: Where, /) -> Vector: ...


class ShardStatus(NamedTuple):
    """A shard, for whoever watches."""

    parameters: int
    """P + B of its slice."""
    nbytes: int
    """Memory of all that it keeps of them."""
    node: str
    """Ray's name for the machine that it is on; empty: this process is it."""
    process: int


class Vectors(Protocol):
    """What `Parameters` keeps of each parameter: float32 [P + B], the last B of them running statistics.

    What changes something returns nothing; it is done in order, at the latest when something is asked.
    """

    @property
    def theta(self) -> Vector: ...

    @property
    def entries(self) -> Entries:
        """theta without going through all of it."""

    @property
    def average(self) -> Vector | None: ...

    @property
    def memory(self) -> OptimizerMemory:
        """But for how many updates wait."""

    @property
    def standing(self) -> Sequence[ShardStatus]:
        """The shards that it is in; none, if it is here."""

    def share(self, nodes: int) -> None:
        """From now on sigma_k counts by n = `nodes` updates."""

    def descend(self, where: Where, delta: Vector, base: int, rate: np.float32) -> None:
        """theta_k -= rate / max(1, sigma_k / n) delta_k, in one pass, sigma_k if the rule asks for it. It
        counts as a version.
        """

    def gather(self, where: Where, delta: Vector, base: int, weight: np.float32) -> None:
        """weight / max(1, sigma_k / n) delta_k waits for others, and counts as a version."""

    def prepare(self, where: Where, delta: Vector, base: int, weight: np.float32, waiting: int) -> None:
        """Compute the gradient of the next step: weight / max(1, sigma_k / n) delta_k, or the mean of
        `waiting` updates, this one included. Of fewer than make a step: at `where` alone. May be repeated.
        """

    def squares(self, total: float) -> float:
        """total + |g|^2 of that gradient, in order, for a norm."""

    def fits(self, rate: np.float32, shortened: np.float32 | None, most: float) -> bool:
        """Whether `step` would leave all within `most` in magnitude, or what was not no further from it."""

    def step(self, rate: np.float32, shortened: np.float32 | None) -> None:
        """By the optimizer, with that gradient, all of it times `shortened`. It counts as a version."""

    def gather_no_more(self) -> None:
        """What waited was of a regime before, and has made its step."""

    def follow(self, statistics: Vector, lag: int) -> None:
        """b <- b + (s - b) / lag, for the running statistics b."""

    def take_in(self, weight: np.float32) -> None:
        """average <- average + weight (theta - average)."""

    def largest(self) -> float:
        """The largest |theta_k| of what is trained."""

    def gathered_places(self) -> NDArray[np.int64]:
        """Where what waits for a step is not zero."""

    def flush(self) -> None:
        """See to it that what was told is under way."""


class VectorState(NamedTuple):
    """Where `Vectors` begin."""

    theta: Vector
    """[P + B], changed in place."""
    average: Vector | None
    """Of the same shape; None: theta, if the regime keeps one."""
    memory: OptimizerMemory
    buffers: int
    """B."""
    regime: Regime
    start: int
    """Nothing was touched before this version."""

    @property
    def trained(self) -> int:
        """P."""
        return self.theta.size - self.buffers


class Part:
    """`Vectors` in this process."""

    standing = ()

    def __init__(self, state: VectorState, recent: Iterable[Step] = ()) -> None:
        """`recent` are the steps that made the versions after `state.start`.

        Raises ConfigError if there is no such optimizer.
        """
        theta, average, memory, buffers, regime, start = state
        self.theta = theta
        self.average = (theta.copy() if average is None else average) if regime.average else None
        self._trained, self._statistics = np.split(theta, [theta.size - buffers])
        self._together, self._is_plain = regime.how.together, regime.how.is_plain
        self._nodes = regime.how.nodes
        self._optimizer: Optimizer | None = None
        """None: theta - rate g, in one pass."""
        self._gathered: Vector | None = None
        """The sum of the updates that wait for others to make a step with: [P]."""
        size = self._trained.size
        if gathers(state):
            self._gathered = np.zeros(size, np.float32) if memory.gathered is None else memory.gathered
        if optimizes(state):
            self._optimizer = Optimizer(regime.how, size)
            if memory.of == self._optimizer.kind.remembers:
                self._optimizer = Optimizer(regime.how, size, memory.numbers)
        self._gradient: tuple[Where, Vector] = slice(None), self._trained[:0]
        """That of the next step, and"""
        self._changes: tuple[Where, Vector] = slice(None), self._trained[:0]
        """the update that makes it."""
        self._everywhere: NDArray[np.int64] | None = None
        """All indices, once they were asked for."""
        self.staleness: Staleness | None = None
        if rule(regime.rule).per_parameter and not regime.rounds:
            self.staleness = Staleness(size, regime.window, start)
            for step in recent:
                self.touch(step.where, step.delta)

    def touch(self, where: Where, delta: Vector) -> None:
        """A version was made by this change."""
        if self.staleness is not None:
            self.staleness.touch(where, delta)

    @property
    def entries(self) -> Entries:
        return self.theta

    def read(self, where: Where) -> Vector:
        """theta there."""
        return self.theta[where]

    @property
    def memory(self) -> OptimizerMemory:
        optimizer = self._optimizer
        if optimizer is None:
            return OptimizerMemory()
        numbers = optimizer.memory if optimizer.kind.columns else None
        return OptimizerMemory(optimizer.kind.remembers, numbers, self._gathered)

    @property
    def nbytes(self) -> int:
        """Memory of all that is kept of each parameter."""
        optimizer = 0 if self._optimizer is None else self._optimizer.memory.nbytes
        staleness = 0 if self.staleness is None else self.staleness.nbytes
        vectors = (self.theta, self.average, self._gathered)
        return optimizer + staleness + sum(vector.nbytes for vector in vectors if vector is not None)

    # What changes it

    def share(self, nodes: int) -> None:
        self._nodes = nodes

    def descend(self, where: Where, delta: Vector, base: int, rate: np.float32) -> None:
        if self.staleness is None:
            descend(self._trained, where, delta, rate)
        elif self._nodes > 1:
            self.prepare(where, delta, base, rate, 1)
            self.step(np.float32(1), None)
        else:
            self.staleness.descend(self._trained, where, delta, base, rate)

    def gather(self, where: Where, delta: Vector, base: int, weight: np.float32) -> None:
        assert self._gathered is not None, "updates make a step together"
        descend(self._gathered, where, self._weighed(where, delta, base, weight), np.float32(-1))
        self.touch(where, delta)

    def prepare(self, where: Where, delta: Vector, base: int, weight: np.float32, waiting: int) -> None:
        self._changes = where, delta
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = self._weighed(where, delta, base, weight)
            if self._gathered is not None:
                share = np.float32(max(self._together, waiting))
                gradient = (self._gathered[where] + gradient) / share
                if waiting >= self._together:
                    mean = self._gathered / share
                    mean[where] = gradient
                    where, gradient = slice(None), mean
        self._gradient = where, gradient

    def squares(self, total: float) -> float:
        return float(steps.squares(self._gradient[1], total))

    def fits(self, rate: np.float32, shortened: np.float32 | None, most: float) -> bool:
        where, gradient = self._shortened(shortened)
        before = self._trained[where]
        with np.errstate(over="ignore", invalid="ignore"):
            if self._optimizer is None:
                after = before - rate * gradient
            else:
                after = self._optimizer.tried(self._trained, self._indices(where), gradient, rate)
            return within(before, after, most)

    def step(self, rate: np.float32, shortened: np.float32 | None) -> None:
        where, gradient = self._shortened(shortened)
        self.touch(*self._changes)
        if self._gathered is not None:
            self._gathered[:] = 0
        if self._optimizer is None:
            descend(self._trained, where, gradient, rate)
        else:
            self._optimizer.step(self._trained, self._indices(where), gradient, rate)
        self._gradient = self._changes = slice(None), self._trained[:0]

    def gather_no_more(self) -> None:
        self._gathered = None
        if self._is_plain:
            self._optimizer = None

    def follow(self, statistics: Vector, lag: int) -> None:
        follow(self._statistics, statistics, lag)

    def take_in(self, weight: np.float32) -> None:
        assert self.average is not None, "the regime keeps one"
        approach(self.average, self.theta, weight)

    # What can be asked

    def largest(self) -> float:
        return largest(self._trained)

    def gathered_places(self) -> NDArray[np.int64]:
        assert self._gathered is not None, "updates make a step together"
        return np.flatnonzero(self._gathered)

    def flush(self) -> None:
        """Everything is done at once."""

    def _weighed(self, where: Where, delta: Vector, base: int, weight: np.float32) -> Vector:
        """weight / max(1, sigma_k / n) delta_k."""
        if self.staleness is None:
            return weight * delta
        return self.staleness.weigh(where, delta, base, weight, self._updates)

    def _shortened(self, by: np.float32 | None) -> tuple[Where, Vector]:
        """The gradient of the next step, clipped."""
        where, gradient = self._gradient
        return where, gradient if by is None else gradient * by

    @property
    def _updates(self) -> int:
        """How many staleness counts as one: those of a step, or one of each node at work."""
        return max(self._together, self._nodes)

    def _indices(self, where: Where) -> NDArray[np.int64]:
        if not isinstance(where, slice):
            return where
        if self._everywhere is None:
            self._everywhere = np.arange(self._trained.size)
        return self._everywhere


def gathers(state: VectorState) -> bool:
    """Whether updates wait for others to make a step with."""
    return state.regime.how.together > 1 or state.memory.waiting > 0


def optimizes(state: VectorState) -> bool:
    """Whether an optimizer steps."""
    return not state.regime.how.is_plain or gathers(state)
