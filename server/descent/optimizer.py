"""The server optimizers: they turn the weighed (and clipped) gradient g of an update into a step of theta.

    sgd        theta_k -= rate g_k
    momentum   v_k <- beta_1 v_k + g_k;  theta_k -= rate v_k
    nesterov   v_k <- beta_1 v_k + g_k;  theta_k -= rate (g_k + beta_1 v_k)
    adam       m_k <- m_k + (1 - beta_1) / (1 - beta_1^t_k) (g_k - m_k)
               s_k <- s_k + (1 - beta_2) / (1 - beta_2^t_k) (g_k^2 - s_k)
               theta_k -= rate m_k / (sqrt(s_k) + epsilon)
    adamw      as adam, and theta_k -= rate weight_decay theta_k

All but adamw add weight_decay theta_k to g_k first. The formulas are torch's with one difference: steps are
lazy. Only parameters k with g_k != 0 are read or written, so that the cost of a step is that of its entries.
While updates do not touch a parameter, its state does not fade and its weight does not decay. t_k counts the
updates that changed parameter k. m_k and s_k are those of Adam after bias correction (D. Kingma and J. Ba,
ICLR 2015, algorithm 1).
Each operation is in float32 and rounds once, so that a replay gives the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from types import FunctionType

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import kernels
from edgeflock.server.descent.memory import Memory, OptimizerMemory, Vector
from edgeflock.server.descent.regime import StepMethod
from edgeflock.server.descent.step import Index
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.plugins import Table

Indices = NDArray[np.int64]

_ROUNDING = 1 + 1e-6
"""A factor that covers the two roundings of a step."""

_MAX_COUNT = 1 << 16
"""The highest count of a parameter's updates. 1 - beta^t is about 1 by then."""


def descend(theta: Vector, indices: Index, delta: Vector, rate: np.float32) -> None:
    """theta_k <- theta_k - rate delta_k for the parameters at `indices`, in place."""
    if isinstance(indices, slice):
        theta -= rate * delta
    else:
        kernels.descend(theta, indices, delta, rate)


def clip_factor(norm: float, limit: float) -> np.float32 | None:
    """Return the clipping factor min(1, limit / |g|); None: 1.

    |g| = `norm` is the norm over the entries of an update, or of a step of several updates.
    """
    return np.float32(limit / norm) if norm > limit else None


StepFunction = Callable[["Optimizer", Vector, Memory, Indices, Vector, np.float32], None]
"""(optimizer, theta, memory, indices, gradient, rate): a step, which changes theta and memory."""


@dataclass(frozen=True, slots=True)
class OptimizerKind:
    state: str
    """The name of its state. Kinds with the same name can continue from each other's state. "": no state."""
    columns: int
    """How many numbers of state each parameter has, initially zeros."""
    step: StepFunction
    """Works in place, on theta[indices] and memory[indices] only; `preview` passes these alone. It must do
    the same float32 operations in the same order everywhere, so that a replay gives the same bits."""
    max_move: Callable[["MoveBound", float], float] = lambda bound, gradient: inf
    """(bound, the largest |g_k|) -> the most that any |theta_k| moves, in units of the rate, except by
    decoupled weight decay. inf: unknown, and each step is tried before it is taken."""


class Optimizer:
    """An optimizer with its state of `size` parameters."""

    def __init__(self, method: StepMethod, size: int, memory: OptimizerMemory | None = None) -> None:
        """`memory` is the state, changed in place. Without one of this kind of optimizer, start with zeros.

        Raises ConfigError if the kind is unknown, or the shape of the state is wrong.
        """
        self.method = method
        self.kind = KINDS.lookup(method.kind, "optimizer.kind")
        shape = (size, self.kind.columns)
        numbers = memory.numbers if memory is not None and memory.kind == self.kind.state else None
        self._rows: Memory = np.zeros(shape, np.float32) if numbers is None else numbers
        if self._rows.shape != shape:
            raise ConfigError(
                f"the state of optimizer.kind = {method.kind!r} has shape {shape}, not {self._rows.shape}"
            )
        self._all_indices = np.arange(0)
        """All indices, made on first use."""
        adam = self.kind.state == "moments"
        self.means = _corrections(method.beta1) if adam else None
        self.squares = _corrections(method.beta2) if adam else None

    @property
    def memory(self) -> OptimizerMemory:
        return OptimizerMemory(self.kind.state, self._rows if self.kind.columns else None)

    @property
    def nbytes(self) -> int:
        """The memory of its state."""
        return self._rows.nbytes

    def step(self, theta: Vector, indices: Index, gradient: Vector, rate: np.float32) -> None:
        """Step with a gradient: update theta and the state at `indices` in place."""
        self.kind.step(self, theta, self._rows, self._indices(indices), gradient, rate)

    def preview(self, theta: Vector, indices: Index, gradient: Vector, rate: np.float32) -> Vector:
        """Return the parameters at `indices` as `step` would leave them, without changing anything."""
        values, rows = theta[self._indices(indices)], self._rows[self._indices(indices)]
        self.kind.step(self, values, rows, np.arange(values.size), gradient, rate)
        return values

    def _indices(self, indices: Index) -> Indices:
        if not isinstance(indices, slice):
            return indices
        if not self._all_indices.size:
            self._all_indices = np.arange(len(self._rows))
        return self._all_indices


class MoveBound:
    """Bounds the magnitudes of the parameters after steps with entries up to a magnitude `entry`."""

    def __init__(self, method: StepMethod, memory: OptimizerMemory) -> None:
        """`memory` is the optimizer's initial state. Raises ConfigError if the kind is unknown."""
        self.method = method
        self._kind = KINDS.lookup(method.kind, "optimizer.kind")
        self._largest = self._moved = inf
        """The bound, and the sum of the moves since the parameters were last read."""
        self._fastest = 0.0
        """An upper bound of all velocities."""
        if memory.numbers is not None and memory.kind == self._kind.state == "velocity":
            self._fastest = kernels.max_magnitude(memory.numbers.ravel())
        self._gathered = 0.0 if memory.gathered is None else kernels.max_magnitude(memory.gathered)
        """An upper bound of the entries of the waiting updates' sum."""

    def max_move(self, entry: float, rate: float, limit: float, waiting: int) -> float:
        """Return a bound on the move of any |theta_k| <= `limit`.

        `waiting` updates make the step, this one included, or as many as a step needs.
        """
        gradient = (self._gathered + entry) / max(self.method.together, waiting)
        decay = self.method.weight_decay * limit
        return rate * (self._kind.max_move(self, gradient + decay) + decay)

    def is_enough(self, read: Callable[[], float], move: float, limit: float) -> bool:
        """Whether a step that moves no parameter by more than `move` certainly takes none beyond `limit`.

        If so, the step is recorded as taken.

        `read` returns the largest magnitude. It is called only after steps add up to a quarter of `limit`, so
        that no device can force frequent calls.
        """
        if not self._largest + move <= limit and self._moved > limit / 4:
            self._largest, self._moved = read(), 0.0
        if not (self._largest + move) * _ROUNDING <= limit:
            return False
        self._largest = (self._largest + move) * _ROUNDING
        self._moved += move
        return True

    def record_checked(self, move: float, limit: float) -> None:
        """Record a step that was checked entry by entry: it takes no parameter beyond `limit`."""
        self._largest = max(self._largest, limit)
        self._moved += move

    def record(self, entry: float, waiting: int) -> None:
        """Record an update that is one of `waiting`: they make a step if they are enough."""
        if waiting < self.method.together:
            self._gathered += entry
            return
        if self._kind.state == "velocity":
            self._fastest = self.velocity((self._gathered + entry) / waiting)
        self._gathered = 0.0

    def velocity(self, gradient: float) -> float:
        """Return a bound on all velocities after a step with entries |g_k| <= `gradient`."""
        return max(self._fastest, self.method.beta1 * self._fastest + gradient)


def _sgd(
    optimizer: Optimizer, theta: Vector, memory: Memory, indices: Indices, gradient: Vector, rate: np.float32
) -> None:
    kernels.sgd(theta, indices, gradient, rate, np.float32(optimizer.method.weight_decay))


def _momentum(
    optimizer: Optimizer, theta: Vector, memory: Memory, indices: Indices, gradient: Vector, rate: np.float32
) -> None:
    beta, decay = np.float32(optimizer.method.beta1), np.float32(optimizer.method.weight_decay)
    is_nesterov = optimizer.method.kind == "nesterov"
    kernels.momentum(theta, memory, indices, gradient, rate, decay, beta, is_nesterov)


def _adam(
    optimizer: Optimizer, theta: Vector, memory: Memory, indices: Indices, gradient: Vector, rate: np.float32
) -> None:
    decay, zero = np.float32(optimizer.method.weight_decay), np.float32(0)
    coupled, decoupled = (zero, decay) if optimizer.method.kind == "adamw" else (decay, zero)
    epsilon = np.float32(optimizer.method.epsilon)
    means, squares = optimizer.means, optimizer.squares
    kernels.adam(theta, memory, indices, gradient, rate, coupled, decoupled, epsilon, means, squares)


def _adam_bound(bound: MoveBound, gradient: float) -> float:
    """Return a bound on m_k / sqrt(s_k), doubled to cover rounding.

    m_k and s_k average g_k and g_k^2 with different weights. The Cauchy-Schwarz inequality gives the bound if
    beta_1^2 < beta_2.
    """
    beta1, beta2 = bound.method.beta1, bound.method.beta2
    if beta1 * beta1 >= beta2:
        return inf
    return 2 * max(1.0, (1 - beta1) / sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2)))


def _corrections(beta: float) -> Vector:
    """(1 - beta) / (1 - beta^(t + 1)) for t = 0, 1, ... Powers are products: the same on any machine."""
    powers = np.cumprod(np.full(_MAX_COUNT, beta))
    return ((1 - beta) / (1 - powers)).astype(np.float32)


def kind_of(found: object) -> OptimizerKind | None:
    """Return an OptimizerKind from an OptimizerKind or a stateless step function; else None."""
    if isinstance(found, OptimizerKind):
        return found
    return OptimizerKind("", 0, found) if isinstance(found, FunctionType) else None


_OURS = {
    "sgd": OptimizerKind("", 0, _sgd, lambda bound, gradient: gradient),
    "momentum": OptimizerKind("velocity", 1, _momentum, lambda bound, gradient: bound.velocity(gradient)),
    "nesterov": OptimizerKind(
        "velocity", 1, _momentum, lambda bound, gradient: gradient + bound.velocity(gradient)
    ),
    "adam": OptimizerKind("moments", 3, _adam, _adam_bound),
    "adamw": OptimizerKind("moments", 3, _adam, _adam_bound),
}

KINDS: Table[OptimizerKind] = Table("edgeflock.optimizers", _OURS, kind_of)
"""Optimizers by their name in `optimizer.kind`."""
