"""optimizer.kind = "lion" and optimizer.schedule = "inverse"."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import StepMethod
from edgeflock.server.descent.optimizer import Optimizer, OptimizerKind

Vector = NDArray[np.float32]


def step(
    of: Optimizer, theta: Vector, memory: Vector, where: NDArray[np.int64], gradient: Vector, rate: np.float32
) -> None:
    """c_k = beta1 m_k + (1 - beta1) g_k; theta_k -= rate (sign(c_k) + weight_decay theta_k);
    m_k <- beta2 m_k + (1 - beta2) g_k (X. Chen et al., 2023, algorithm 2), where g_k is not zero.
    """
    beta1, beta2 = np.float32(of.how.beta1), np.float32(of.how.beta2)
    there = where[gradient != 0]
    new, mean = gradient[gradient != 0], memory[there, 0]
    direction = np.sign(beta1 * mean + (1 - beta1) * new)
    theta[there] -= rate * (direction + np.float32(of.how.weight_decay) * theta[there])
    memory[there, 0] = beta2 * mean + (1 - beta2) * new


LION = OptimizerKind("mean", 1, step, reach=lambda of, gradient: 1.0)


def inverse(how: StepMethod, at: float) -> float:
    """period / (period + t)."""
    return how.period / (how.period + at) if how.period else 1.0
