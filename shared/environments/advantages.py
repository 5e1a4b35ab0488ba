"""Generalised advantage estimation.

Schulman et al., "High-dimensional continuous control using generalized advantage estimation", ICLR 2016,
equations 11 to 16.
"""

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.float32]
"""float32 [T, E]: T steps of E environments."""


def advantages(
    rewards: Steps, values: Steps, ended: NDArray[np.bool_], last: Steps, discount: float, smoothing: float
) -> tuple[Steps, Steps]:
    """(advantages, returns) of T steps of E environments.

        delta_t = r_t + discount V_{t+1} - V_t
        A_t     = delta_t + discount smoothing A_{t+1}         R_t = A_t + V_t

    V_{t+1} and A_{t+1} count as 0 where the episode `ended` with step t. `last` is V_T: float32 [E].

    >>> one = np.ones((2, 1), np.float32)
    >>> advantages(one, 0 * one, np.array([[False], [True]]), one[0], 0.5, 1.0)[0].ravel().tolist()
    [1.5, 1.0]
    """
    found = np.zeros_like(rewards)
    following, value = np.zeros_like(last), last
    for t in range(len(rewards) - 1, -1, -1):
        goes_on = np.float32(discount) * ~ended[t]
        delta = rewards[t] + goes_on * value - values[t]
        following = delta + np.float32(smoothing) * goes_on * following
        found[t], value = following, values[t]
    return found, found + values
