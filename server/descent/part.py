"""A contiguous slice of theta, or all of it, with the state of each of its parameters.

parameters.py handles steps as a whole: versions, weights, rates and norms. It calls the methods here, so that
a slice may be in a process of its own (server/shards).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import kernels
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.descent.optimizer import Optimizer, descend
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.staleness import Staleness
from edgeflock.server.descent.statistics import move_towards
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.weighting import rule

Vector = NDArray[np.float32]


class Entries(Protocol):
    """Read access to theta at some indices, or as a whole by [:]."""

    @property
    def size(self) -> int: ...

    def __getitem__(self, indices: Index, /) -> Vector: ...


class ShardStatus(NamedTuple):
    parameters: int
    """P + B of its slice."""
    nbytes: int
    """The memory of its parameters and their state."""
    node: str
    """Ray's name for the shard's machine; empty: the shard is in this process."""
    process: int


class Vectors(Protocol):
    """The state of each parameter: float32 [P + B], the last B of them running statistics.

    Methods that return nothing run in order, at the latest before the next one that returns something. Each
    `descend` and each `step` counts as a version.
    """

    def read(self, indices: Index) -> Vector:
        """Return theta at `indices`, which may repeat, or all of it for slice(None)."""

    @property
    def average(self) -> Vector | None: ...

    @property
    def memory(self) -> OptimizerMemory:
        """The optimizer's state, without the number of waiting updates."""

    @property
    def shard_statuses(self) -> Sequence[ShardStatus]:
        """The status of each model shard; empty if the vectors are in this process."""

    def descend(self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int) -> None:
        """theta_k -= weight / max(1, sigma_k / unit) delta_k, or add this to the sum of waiting updates.

        sigma_k is used only if the rule needs it.
        """

    def weigh(
        self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int, waiting: int
    ) -> None:
        """Compute the gradient of the next step. Idempotent.

        It is weight / max(1, sigma_k / unit) delta_k, or the mean of `waiting` updates, this one included.
        With too few updates for a step, only at `indices`.
        """

    def squares(self, total: float) -> float:
        """Return total + |g|^2 of the gradient, summed in order, for a norm."""

    def fits(self, rate: np.float32, clip_factor: np.float32 | None, limit: float) -> bool:
        """Whether `step` keeps all magnitudes within `limit`, and moves none further that are beyond it."""

    def step(self, rate: np.float32, clip_factor: np.float32 | None) -> None:
        """Step with the gradient times `clip_factor`, by the optimizer."""

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

    @property
    def is_gathering(self) -> bool:
        """Whether updates wait for others to make a step."""
        return self.regime.method.together > 1 or self.memory.waiting > 0

    @property
    def is_plain(self) -> bool:
        """Whether a step is just theta - rate g, without an `Optimizer`."""
        return self.regime.method.is_plain and not self.is_gathering


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
        self._method = regime.method
        self._optimizer = None if state.is_plain else Optimizer(regime.method, state.trained, memory)
        """None: a step is theta - g, the rate being part of g."""
        self._gathered: Vector | None = None
        """The sum of the updates that wait for others to make a step: [P]."""
        if state.is_gathering:
            self._gathered = (
                np.zeros(state.trained, np.float32) if memory.gathered is None else memory.gathered
            )
        self._nothing: tuple[Index, Vector] = slice(0), self._trained[:0]
        self._update: tuple[Index, Vector] = self._nothing
        """The update that makes the next step."""
        self._gradient: tuple[Index, Vector] = self._nothing
        """The gradient of the next step."""
        self.staleness: Staleness | None = None
        if rule(regime.rule).per_parameter and not regime.rounds:
            self.staleness = Staleness(state.trained, regime.window, start)
            for step in recent:
                self.touch(step.indices, step.delta)

    def touch(self, indices: Index, delta: Vector) -> None:
        """Record the change that made a version."""
        if self.staleness is not None:
            self.staleness.touch(indices, delta)

    def read(self, indices: Index) -> Vector:
        return self.theta[indices]

    @property
    def memory(self) -> OptimizerMemory:
        if self._optimizer is None:
            return OptimizerMemory()
        return replace(self._optimizer.memory, gathered=self._gathered)

    @property
    def nbytes(self) -> int:
        """The memory of all state of the parameters."""
        optimizer = 0 if self._optimizer is None else self._optimizer.nbytes
        staleness = 0 if self.staleness is None else self.staleness.nbytes
        vectors = (self.theta, self.average, self._gathered)
        return optimizer + staleness + sum(vector.nbytes for vector in vectors if vector is not None)

    def descend(self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int) -> None:
        changed, rate = (self._trained, weight) if self._gathered is None else (self._gathered, -weight)
        if self.staleness is None:
            descend(changed, indices, delta, rate)
        else:
            self.staleness.descend(changed, indices, delta, base, rate, unit)

    def weigh(
        self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int, waiting: int
    ) -> None:
        self._update = indices, delta
        gradient = self._weigh(indices, delta, base, weight, unit)
        if self._gathered is not None:
            share = np.float32(max(self._method.together, waiting))
            gradient = (self._gathered[indices] + gradient) / share
            if waiting >= self._method.together:
                mean = self._gathered / share
                mean[indices] = gradient
                indices, gradient = slice(None), mean
        self._gradient = indices, gradient

    def _weigh(self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int) -> Vector:
        if self.staleness is None:
            return weight * delta
        return self.staleness.weigh(indices, delta, base, weight, unit)

    def squares(self, total: float) -> float:
        return float(kernels.squares(self._gradient[1], total))

    def fits(self, rate: np.float32, clip_factor: np.float32 | None, limit: float) -> bool:
        indices, gradient = self._clipped_gradient(clip_factor)
        before = self._trained[indices]
        if self._optimizer is None:
            after = before - gradient
        else:
            after = self._optimizer.preview(self._trained, indices, gradient, rate)
        return bool((np.abs(after) <= np.maximum(np.float32(limit), np.abs(before))).all())

    def step(self, rate: np.float32, clip_factor: np.float32 | None) -> None:
        indices, gradient = self._clipped_gradient(clip_factor)
        self.touch(*self._update)
        if self._gathered is not None:
            self._gathered[:] = 0
        assert self._optimizer is not None, "a step without an optimizer is in one pass"
        self._optimizer.step(self._trained, indices, gradient, rate)
        self._update = self._gradient = self._nothing
        if self._method.together == 1:  # updates that waited from an earlier regime have made their step
            self._gathered = None
            if self._method.is_plain:
                self._optimizer = None

    def _clipped_gradient(self, factor: np.float32 | None) -> tuple[Index, Vector]:
        indices, gradient = self._gradient
        return indices, gradient if factor is None else gradient * factor

    def follow(self, statistics: Vector, lag: int) -> None:
        move_towards(self._statistics, statistics, lag)

    def update_average(self, weight: np.float32) -> None:
        assert self.average is not None, "the regime keeps one"
        kernels.approach(self.average, self.theta, weight)

    def gathered_indices(self) -> NDArray[np.int64]:
        assert self._gathered is not None, "updates make a step together"
        return np.flatnonzero(self._gathered)

    def max_magnitude(self) -> float:
        return float(kernels.max_magnitude(self._trained))

    def flush(self) -> None:
        """Nothing to do: changes are made at once."""
