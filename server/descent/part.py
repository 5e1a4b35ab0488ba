"""A contiguous slice of theta, or all of it, with the state of each of its parameters.

parameters.py and ways/ handle steps as a whole: versions, weights, rates and norms. They call the methods
here, so that a slice may be in a process of its own (server/shards).
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
from edgeflock.server.descent.statistics import move_towards
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.step_bound import is_within, max_magnitude
from edgeflock.server.descent.weighting import rule

Vector = NDArray[np.float32]


class Entries(Protocol):
    """Read access to theta at some indices, or as a whole by [:]."""

    @property
    def size(self) -> int: ...

    def __getitem__(self, indices: Index, /) -> Vector: ...


class ShardStatus(NamedTuple):
    """The status of a model shard."""

    parameters: int
    """P + B of its slice."""
    nbytes: int
    """The memory of its parameters and their state."""
    node: str
    """Ray's name for the shard's machine; empty: the shard is in this process."""
    process: int


class Vectors(Protocol):
    """The state of each parameter: float32 [P + B], the last B of them running statistics.

    Methods that change state return nothing. They run in order, at the latest before the next read.
    """

    @property
    def theta(self) -> Vector: ...

    @property
    def entries(self) -> Entries:
        """theta, for access to some entries without a full copy."""

    @property
    def average(self) -> Vector | None: ...

    @property
    def memory(self) -> OptimizerMemory:
        """The optimizer's state, without the number of waiting updates."""

    @property
    def shard_statuses(self) -> Sequence[ShardStatus]:
        """The status of each model shard; empty if the vectors are in this process."""

    def set_node_count(self, nodes: int) -> None:
        """Count sigma_k in units of n = `nodes` updates from now on."""

    def descend(self, indices: Index, delta: Vector, base: int, rate: np.float32) -> None:
        """theta_k -= rate / max(1, sigma_k / n) delta_k, in one pass.

        sigma_k is used only if the rule needs it. Counts as a version.
        """

    def gather(self, indices: Index, delta: Vector, base: int, weight: np.float32) -> None:
        """Add weight / max(1, sigma_k / n) delta_k to the waiting updates. Counts as a version."""

    def prepare(self, indices: Index, delta: Vector, base: int, weight: np.float32, waiting: int) -> None:
        """Compute the gradient of the next step. Idempotent.

        It is weight / max(1, sigma_k / n) delta_k, or the mean of `waiting` updates, this one included. With
        too few updates for a step, only at `indices`.
        """

    def squares(self, total: float) -> float:
        """Return total + |g|^2 of the prepared gradient, summed in order, for a norm."""

    def fits(self, rate: np.float32, clip_factor: np.float32 | None, limit: float) -> bool:
        """Whether `step` keeps all magnitudes within `limit`, and moves none further that are beyond it."""

    def step(self, rate: np.float32, clip_factor: np.float32 | None) -> None:
        """Step with the prepared gradient times `clip_factor`, by the optimizer. Counts as a version."""

    def stop_gathering(self) -> None:
        """Stop gathering: the updates that waited from an earlier regime have made their step."""

    def follow(self, statistics: Vector, lag: int) -> None:
        """Compute b <- b + (s - b) / lag, for the running statistics b."""

    def update_average(self, weight: np.float32) -> None:
        """Compute average <- average + weight (theta - average)."""

    def max_magnitude(self) -> float:
        """Return the largest |theta_k| of the trained parameters."""

    def gathered_indices(self) -> NDArray[np.int64]:
        """Return the indices at which the sum of the waiting updates is not zero."""

    def flush(self) -> None:
        """Start all changes that were requested."""


class VectorState(NamedTuple):
    """The initial state of `Vectors`."""

    theta: Vector
    """[P + B], changed in place."""
    average: Vector | None
    """[P + B]; None: start from theta, if the regime keeps an average."""
    memory: OptimizerMemory
    buffers: int
    """B."""
    regime: Regime
    start: int
    """Staleness counts from this version on."""

    @property
    def trained(self) -> int:
        """P."""
        return self.theta.size - self.buffers


class Part:
    """`Vectors` in this process."""

    shard_statuses = ()

    def __init__(self, state: VectorState, recent: Iterable[Step] = ()) -> None:
        """`recent` are the steps that made the versions after `state.start`.

        Raises ConfigError if the optimizer is unknown.
        """
        theta, average, memory, buffers, regime, start = state
        self.theta = theta
        self.average = (theta.copy() if average is None else average) if regime.average else None
        self._trained, self._statistics = np.split(theta, [theta.size - buffers])
        self._updates_per_step, self._is_plain = regime.method.together, regime.method.is_plain
        self._nodes = regime.method.nodes
        self._optimizer: Optimizer | None = None
        """None: a step is theta - rate g, in one pass."""
        self._gathered: Vector | None = None
        """The sum of the updates that wait for others to make a step: [P]."""
        size = self._trained.size
        if needs_gathering(state):
            self._gathered = np.zeros(size, np.float32) if memory.gathered is None else memory.gathered
        if needs_optimizer(state):
            self._optimizer = Optimizer(regime.method, size)
            if memory.kind == self._optimizer.kind.state:
                self._optimizer = Optimizer(regime.method, size, memory.numbers)
        self._gradient: tuple[Index, Vector] = slice(None), self._trained[:0]
        """The gradient of the next step."""
        self._changes: tuple[Index, Vector] = slice(None), self._trained[:0]
        """The update that makes the next step."""
        self._all_indices: NDArray[np.int64] | None = None
        """All indices, cached on first use."""
        self.staleness: Staleness | None = None
        if rule(regime.rule).per_parameter and not regime.rounds:
            self.staleness = Staleness(size, regime.window, start)
            for step in recent:
                self.touch(step.indices, step.delta)

    def touch(self, indices: Index, delta: Vector) -> None:
        """Record the change that made a version."""
        if self.staleness is not None:
            self.staleness.touch(indices, delta)

    @property
    def entries(self) -> Entries:
        return self.theta

    def read(self, indices: Index) -> Vector:
        """Return theta at `indices`."""
        return self.theta[indices]

    @property
    def memory(self) -> OptimizerMemory:
        optimizer = self._optimizer
        if optimizer is None:
            return OptimizerMemory()
        numbers = optimizer.memory if optimizer.kind.columns else None
        return OptimizerMemory(optimizer.kind.state, numbers, self._gathered)

    @property
    def nbytes(self) -> int:
        """The memory of all state of the parameters."""
        optimizer = 0 if self._optimizer is None else self._optimizer.memory.nbytes
        staleness = 0 if self.staleness is None else self.staleness.nbytes
        vectors = (self.theta, self.average, self._gathered)
        return optimizer + staleness + sum(vector.nbytes for vector in vectors if vector is not None)

    # Changes

    def set_node_count(self, nodes: int) -> None:
        self._nodes = nodes

    def descend(self, indices: Index, delta: Vector, base: int, rate: np.float32) -> None:
        if self.staleness is None:
            descend(self._trained, indices, delta, rate)
        elif self._nodes > 1:
            self.prepare(indices, delta, base, rate, 1)
            self.step(np.float32(1), None)
        else:
            self.staleness.descend(self._trained, indices, delta, base, rate)

    def gather(self, indices: Index, delta: Vector, base: int, weight: np.float32) -> None:
        assert self._gathered is not None, "updates make a step together"
        descend(self._gathered, indices, self._weigh(indices, delta, base, weight), np.float32(-1))
        self.touch(indices, delta)

    def prepare(self, indices: Index, delta: Vector, base: int, weight: np.float32, waiting: int) -> None:
        self._changes = indices, delta
        with np.errstate(over="ignore", invalid="ignore"):
            gradient = self._weigh(indices, delta, base, weight)
            if self._gathered is not None:
                share = np.float32(max(self._updates_per_step, waiting))
                gradient = (self._gathered[indices] + gradient) / share
                if waiting >= self._updates_per_step:
                    mean = self._gathered / share
                    mean[indices] = gradient
                    indices, gradient = slice(None), mean
        self._gradient = indices, gradient

    def squares(self, total: float) -> float:
        return float(steps.squares(self._gradient[1], total))

    def fits(self, rate: np.float32, clip_factor: np.float32 | None, limit: float) -> bool:
        indices, gradient = self._clipped_gradient(clip_factor)
        before = self._trained[indices]
        with np.errstate(over="ignore", invalid="ignore"):
            if self._optimizer is None:
                after = before - rate * gradient
            else:
                after = self._optimizer.preview(self._trained, self._indices(indices), gradient, rate)
            return is_within(before, after, limit)

    def step(self, rate: np.float32, clip_factor: np.float32 | None) -> None:
        indices, gradient = self._clipped_gradient(clip_factor)
        self.touch(*self._changes)
        if self._gathered is not None:
            self._gathered[:] = 0
        if self._optimizer is None:
            descend(self._trained, indices, gradient, rate)
        else:
            self._optimizer.step(self._trained, self._indices(indices), gradient, rate)
        self._gradient = self._changes = slice(None), self._trained[:0]

    def stop_gathering(self) -> None:
        self._gathered = None
        if self._is_plain:
            self._optimizer = None

    def follow(self, statistics: Vector, lag: int) -> None:
        move_towards(self._statistics, statistics, lag)

    def update_average(self, weight: np.float32) -> None:
        assert self.average is not None, "the regime keeps one"
        approach(self.average, self.theta, weight)

    # Queries

    def max_magnitude(self) -> float:
        return max_magnitude(self._trained)

    def gathered_indices(self) -> NDArray[np.int64]:
        assert self._gathered is not None, "updates make a step together"
        return np.flatnonzero(self._gathered)

    def flush(self) -> None:
        """Nothing to do: changes are made at once."""

    def _weigh(self, indices: Index, delta: Vector, base: int, weight: np.float32) -> Vector:
        """Return weight / max(1, sigma_k / n) delta_k."""
        if self.staleness is None:
            return weight * delta
        return self.staleness.weigh(indices, delta, base, weight, self._staleness_unit)

    def _clipped_gradient(self, factor: np.float32 | None) -> tuple[Index, Vector]:
        """The gradient of the next step, clipped."""
        indices, gradient = self._gradient
        return indices, gradient if factor is None else gradient * factor

    @property
    def _staleness_unit(self) -> int:
        """How many updates staleness counts as one: those of a step, or one from each node."""
        return max(self._updates_per_step, self._nodes)

    def _indices(self, indices: Index) -> NDArray[np.int64]:
        if not isinstance(indices, slice):
            return indices
        if self._all_indices is None:
            self._all_indices = np.arange(self._trained.size)
        return self._all_indices


def needs_gathering(state: VectorState) -> bool:
    """Whether updates wait for others to make a step."""
    return state.regime.method.together > 1 or state.memory.waiting > 0


def needs_optimizer(state: VectorState) -> bool:
    """Whether steps need an `Optimizer`."""
    return not state.regime.method.is_plain or needs_gathering(state)
