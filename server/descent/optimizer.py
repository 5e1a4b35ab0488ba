"""The server optimizers: they turn the weighed (and clipped) gradient g of an update into a step of theta.

    sgd        theta_k -= rate g_k
    momentum   v_k <- beta_1 v_k + g_k;  theta_k -= rate v_k
    nesterov   v_k <- beta_1 v_k + g_k;  theta_k -= rate (g_k + beta_1 v_k)
    adam       m_k <- m_k + (1 - beta_1) / (1 - beta_1^t_k) (g_k - m_k)
               s_k <- s_k + (1 - beta_2) / (1 - beta_2^t_k) (g_k^2 - s_k)
               theta_k -= rate m_k / (sqrt(s_k) + epsilon)
    adamw      as adam, and theta_k -= rate weight_decay theta_k
    adagrad    s_k <- s_k + g_k^2;  theta_k -= rate g_k / (sqrt(s_k) + epsilon)

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

from edgeflock.server.descent import steps
from edgeflock.server.descent.kernels import descend as descend_at
from edgeflock.server.descent.method import StepMethod
from edgeflock.server.descent.step import Where
from edgeflock.server.descent.step_bound import largest
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.plugins import Table

Vector = NDArray[np.float32]
Indices = NDArray[np.int64]
Memory = NDArray[np.float32]
"""The state, one row a parameter: [P, columns]."""

_COUNTED = 1 << 16
"""The highest count of a parameter's updates. 1 - beta^t is about 1 by then."""


def descend(theta: Vector, where: Where, delta: Vector, rate: np.float32) -> None:
    """theta_k <- theta_k - rate delta_k for the parameters at `where`, in place."""
    if isinstance(where, slice):
        theta -= rate * delta
    else:
        descend_at(theta, where, delta, rate)


def shortening(length: float, most: float) -> np.float32 | None:
    """Return the clipping factor min(1, most / |g|); None: 1.
    |g| = `length` is the norm over the entries of an update, or of a step of several updates.
    """
    return np.float32(most / length) if length > most else None


Take = Callable[["Optimizer", Vector, Memory, Indices, Vector, np.float32], None]
"""(optimizer, theta, memory, where, gradient, rate): a step of optimizer.how. Changes theta and memory."""


@dataclass(frozen=True, slots=True)
class OptimizerKind:
    """A kind of optimizer."""

    remembers: str
    """The name of its state. Kinds with the same name can continue from each other's state. "": no state."""
    columns: int
    """How many numbers of state each parameter has, initially zeros."""
    step: Take
    """Works in place and uses only theta[where] and memory[where]; `tried` passes these alone. It must do the
    same float32 operations in the same order everywhere, so that a replay gives the same bits."""
    reach: Callable[["Foresight", float], float] = lambda of, gradient: inf
    """(foresight, the largest |g_k|) -> the most that any |theta_k| moves, in units of the rate, except by
    decoupled weight decay. inf: unknown, and each step is tried before it is taken."""


class Optimizer:
    """An optimizer with its state of `size` parameters."""

    def __init__(self, how: StepMethod, size: int, memory: Memory | None = None) -> None:
        """`memory` is the state, changed in place; None: start with zeros.
        Raises ConfigError if the kind is unknown, or the shape of `memory` is wrong.
        """
        self.how = how
        self.kind = KINDS.known(how.kind, "optimizer.kind")
        shape = (size, self.kind.columns)
        self.memory: Memory = np.zeros(shape, np.float32) if memory is None else memory
        if self.memory.shape != shape:
            raise ConfigError(f"{how.kind} remembers {shape} numbers, not {self.memory.shape}")
        adam = self.kind.remembers == "moments"
        self.means = _corrections(how.beta1) if adam else None
        self.squares = _corrections(how.beta2) if adam else None

    def step(self, theta: Vector, where: Indices, gradient: Vector, rate: np.float32) -> None:
        """Step with a gradient: update theta and the state at `where` in place."""
        self.kind.step(self, theta, self.memory, where, gradient, rate)

    def tried(self, theta: Vector, where: Indices, gradient: Vector, rate: np.float32) -> Vector:
        """Return the parameters at `where` as `step` would leave them, without changing anything."""
        there, memory = theta[where], self.memory[where]
        self.kind.step(self, there, memory, np.arange(where.size), gradient, rate)
        return there


class Foresight:
    """Bounds how far steps can move theta, without reading the optimizer's state."""

    def __init__(self, how: StepMethod, memory: Memory | None = None) -> None:
        """`memory` is the optimizer's initial state. Raises ConfigError if the kind is unknown."""
        self.how = how
        self.kind = KINDS.known(how.kind, "optimizer.kind")
        self._fastest = 0.0
        """An upper bound of all velocities."""
        if memory is not None and self.kind.remembers == "velocity":
            self._fastest = largest(memory.ravel())

    def reach(self, gradient: float, rate: float, most: float) -> float:
        """Return a bound on the move of any |theta_k| <= `most`, for entries |g_k| <= `gradient`."""
        decay = self.how.weight_decay * most
        return rate * (self.kind.reach(self, gradient + decay) + decay)

    def took(self, gradient: float) -> None:
        """Record a step with entries |g_k| <= `gradient`."""
        if self.kind.remembers == "velocity":
            self._fastest = self.velocity(gradient)

    def velocity(self, gradient: float) -> float:
        """Return a bound on all velocities after a step with entries |g_k| <= `gradient`."""
        return max(self._fastest, self.how.beta1 * self._fastest + gradient)


def _sgd(
    of: Optimizer, theta: Vector, memory: Memory, where: Indices, gradient: Vector, rate: np.float32
) -> None:
    steps.sgd(theta, where, gradient, rate, np.float32(of.how.weight_decay))


def _momentum(
    of: Optimizer, theta: Vector, memory: Memory, where: Indices, gradient: Vector, rate: np.float32
) -> None:
    beta, decay = np.float32(of.how.beta1), np.float32(of.how.weight_decay)
    steps.momentum(theta, memory, where, gradient, rate, decay, beta)


def _nesterov(
    of: Optimizer, theta: Vector, memory: Memory, where: Indices, gradient: Vector, rate: np.float32
) -> None:
    beta, decay = np.float32(of.how.beta1), np.float32(of.how.weight_decay)
    steps.nesterov(theta, memory, where, gradient, rate, decay, beta)


def _adam(
    of: Optimizer, theta: Vector, memory: Memory, where: Indices, gradient: Vector, rate: np.float32
) -> None:
    decay, none = np.float32(of.how.weight_decay), np.float32(0)
    coupled, beside = (none, decay) if of.how.kind == "adamw" else (decay, none)
    epsilon = np.float32(of.how.epsilon)
    steps.adam(theta, memory, where, gradient, rate, coupled, beside, epsilon, of.means, of.squares)


def _adagrad(
    of: Optimizer, theta: Vector, memory: Memory, where: Indices, gradient: Vector, rate: np.float32
) -> None:
    decay, epsilon = np.float32(of.how.weight_decay), np.float32(of.how.epsilon)
    steps.adagrad(theta, memory, where, gradient, rate, decay, epsilon)


def _reach_of_adam(of: Foresight, gradient: float) -> float:
    """Return a bound on m_k / sqrt(s_k), doubled to cover rounding. m_k and s_k average g_k and g_k^2 with
    different weights. The Cauchy-Schwarz inequality gives the bound if beta_1^2 < beta_2.
    """
    beta1, beta2 = of.how.beta1, of.how.beta2
    if beta1 * beta1 >= beta2:
        return inf
    return 2 * max(1.0, (1 - beta1) / sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2)))


def _corrections(beta: float) -> Vector:
    """(1 - beta) / (1 - beta^(t + 1)) for t = 0, 1, ... Powers are products: the same on any machine."""
    powers = np.cumprod(np.full(_COUNTED, beta))
    return ((1 - beta) / (1 - powers)).astype(np.float32)


def kind_of(found: object) -> OptimizerKind | None:
    """Return an OptimizerKind from an OptimizerKind or a stateless step function; else None."""
    if isinstance(found, OptimizerKind):
        return found
    return OptimizerKind("", 0, found) if isinstance(found, FunctionType) else None


_OURS = {
    "sgd": OptimizerKind("", 0, _sgd, lambda of, gradient: gradient),
    "momentum": OptimizerKind("velocity", 1, _momentum, lambda of, gradient: of.velocity(gradient)),
    "nesterov": OptimizerKind(
        "velocity", 1, _nesterov, lambda of, gradient: gradient + of.velocity(gradient)
    ),
    "adam": OptimizerKind("moments", 3, _adam, _reach_of_adam),
    "adamw": OptimizerKind("moments", 3, _adam, _reach_of_adam),
    "adagrad": OptimizerKind("squares", 1, _adagrad, lambda of, gradient: 1.0),
}

KINDS: Table[OptimizerKind] = Table("edgeflock.optimizers", _OURS, kind_of)
"""Optimizers by their name in `optimizer.kind`."""
