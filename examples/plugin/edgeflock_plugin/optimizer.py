"""optimizer.kind = "lion" and optimizer.schedule = "inverse"."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import StepMethod
from edgeflock.server.descent.optimizer import Optimizer, OptimizerKind

Vector = NDArray[np.float32]


def step(
    optimizer: Optimizer,
    theta: Vector,
    memory: Vector,
    indices: NDArray[np.int64],
    gradient: Vector,
    rate: np.float32,
) -> None:
    """Take a step of Lion, where g_k is not zero.

    c_k = beta1 m_k + (1 - beta1) g_k; theta_k -= rate (sign(c_k) + weight_decay theta_k);
    m_k <- beta2 m_k + (1 - beta2) g_k (X. Chen et al., 2023, algorithm 2).
    """
    beta1, beta2 = np.float32(optimizer.method.beta1), np.float32(optimizer.method.beta2)
    touched = indices[gradient != 0]
    new, mean = gradient[gradient != 0], memory[touched, 0]
    direction = np.sign(beta1 * mean + (1 - beta1) * new)
    theta[touched] -= rate * (direction + np.float32(optimizer.method.weight_decay) * theta[touched])
    memory[touched, 0] = beta2 * mean + (1 - beta2) * new


LION = OptimizerKind("mean", 1, step, max_move=lambda bound, gradient: 1.0)


def inverse(method: StepMethod, elapsed: float) -> float:
    """The factor of the rate: period / (period + t)."""
    return method.period / (method.period + elapsed) if method.period else 1.0
