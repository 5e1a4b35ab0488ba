"""How a step is taken, once an update is weighed: from its gradient g, weighed (and clipped), to theta.

    sgd        theta_k -= rate g_k
    momentum   v_k <- beta_1 v_k + g_k;  theta_k -= rate v_k
    nesterov   v_k <- beta_1 v_k + g_k;  theta_k -= rate (g_k + beta_1 v_k)
    adam       m_k <- m_k + (1 - beta_1) / (1 - beta_1^t_k) (g_k - m_k)
               s_k <- s_k + (1 - beta_2) / (1 - beta_2^t_k) (g_k^2 - s_k)
               theta_k -= rate m_k / (sqrt(s_k) + epsilon)
    adamw      as adam, and theta_k -= rate weight_decay theta_k
    adagrad    s_k <- s_k + g_k^2;  theta_k -= rate g_k / (sqrt(s_k) + epsilon)

Where nothing else is said, weight_decay theta_k is added to g_k before. As in torch, but for one thing. Lazy:
only the parameters k with g_k != 0 take part, and of nothing else is anything read or written, so that a step
costs what its entries cost. What is remembered of a parameter does not fade while updates pass it by, and its
weight does not decay: t_k counts the updates that changed it, beta_1^t_k is of these. m_k and s_k are those
of Adam with the correction of their bias already made (D. Kingma and J. Ba, ICLR 2015, algorithm 1).

float32 throughout, one rounding an operation, so that a replay gives the same bits.
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
"""A row a parameter: [P, columns]."""

_COUNTED = 1 << 16
"""How far updates of a parameter are counted. 1 - beta^t is 1 by then, or as good."""


def descend(theta: Vector, where: Where, delta: Vector, rate: np.float32) -> None:
    """theta_k <- theta_k - rate delta_k for the parameters at `where`, in place."""
    if isinstance(where, slice):
        theta -= rate * delta
    else:
        descend_at(theta, where, delta, rate)


def shortening(length: float, most: float) -> np.float32 | None:
    """min(1, most / |g|), |g| = `length` the norm over the entries of one update, or of one step of several;
    None: 1.
    """
    return np.float32(most / length) if length > most else None


Take = Callable[["Optimizer", Vector, Memory, Indices, Vector, np.float32], None]
"""(optimizer, theta, memory, where, gradient, rate): a step of optimizer.how, theta and memory in place."""


@dataclass(frozen=True, slots=True)
class OptimizerKind:
    """A kind of optimizer."""

    remembers: str
    """What: kinds that remember the same go on from one another. "": nothing."""
    columns: int
    """How many numbers of each parameter, zeros at first."""
    step: Take
    """In place, and of nothing but theta[where] and memory[where]: `tried` hands in these alone. The same
    float32 operations in the same order wherever it runs: a replay must come to the same bits."""
    reach: Callable[["Foresight", float], float] = lambda of, gradient: inf
    """(foresight, the largest |g_k|) -> no |theta_k| moves by more than this times the rate, but for decay of
    weights beside the gradient. inf: not known, and each step is tried before it is taken."""


class Optimizer:
    """What is remembered of each of `size` parameters, and the step."""

    def __init__(self, how: StepMethod, size: int, memory: Memory | None = None) -> None:
        """`memory` is changed in place; None: nothing is remembered yet. Raises ConfigError if there is no
        such kind, or the memory is not of it.
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
        """theta and what is remembered after a gradient, of the parameters at `where`, in place."""
        self.kind.step(self, theta, self.memory, where, gradient, rate)

    def tried(self, theta: Vector, where: Indices, gradient: Vector, rate: np.float32) -> Vector:
        """The parameters at `where` as `step` would leave them."""
        there, memory = theta[where], self.memory[where]
        self.kind.step(self, there, memory, np.arange(where.size), gradient, rate)
        return there


class Foresight:
    """How far steps can go, known without looking at what is remembered."""

    def __init__(self, how: StepMethod, memory: Memory | None = None) -> None:
        """`memory` is what the optimizer goes on from. Raises ConfigError if there is no such kind."""
        self.how = how
        self.kind = KINDS.known(how.kind, "optimizer.kind")
        self._fastest = 0.0
        """No velocity is above it."""
        if memory is not None and self.kind.remembers == "velocity":
            self._fastest = largest(memory.ravel())

    def reach(self, gradient: float, rate: float, most: float) -> float:
        """More than a step moves any parameter that is within `most`, of a gradient that is no larger."""
        decay = self.how.weight_decay * most
        return rate * (self.kind.reach(self, gradient + decay) + decay)

    def took(self, gradient: float) -> None:
        """A step was taken with a gradient that is no larger."""
        if self.kind.remembers == "velocity":
            self._fastest = self.velocity(gradient)

    def velocity(self, gradient: float) -> float:
        """The most that any velocity has after a gradient that is no larger."""
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
    """The most that m_k / sqrt(s_k) can be: both are means of the same numbers, of other weights, and Cauchy
    and Schwarz bound one by the other where beta_1^2 < beta_2. Twice that, for roundings.
    """
    beta1, beta2 = of.how.beta1, of.how.beta2
    if beta1 * beta1 >= beta2:
        return inf
    return 2 * max(1.0, (1 - beta1) / sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2)))


def _corrections(beta: float) -> Vector:
    """(1 - beta) / (1 - beta^(t + 1)) for t = 0, 1, ... By multiplications only: the same on any machine."""
    powers = np.cumprod(np.full(_COUNTED, beta))
    return ((1 - beta) / (1 - powers)).astype(np.float32)


def kind_of(found: object) -> OptimizerKind | None:
    """An OptimizerKind, or a function that steps and remembers nothing."""
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
"""By the name that `optimizer.kind` gives them."""
