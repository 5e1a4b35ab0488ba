"""How the step is taken once its weight is known."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.admission import Step
from edgeflock.server.kernels import descend as descend_at
from edgeflock.server.weighting import Weight


def descend(theta: NDArray[np.float32], step: Step, learning_rate: np.float32, weight: Weight) -> None:
    """theta_k <- theta_k - alpha_k delta_k with alpha_k = learning_rate * weight_k, in place.

    AdaComp, equation (4). float32 throughout, one rounding an operation, so that a replay gives the same
    bits.
    """
    if isinstance(step.where, slice):
        theta -= learning_rate * weight * step.delta
    else:
        weights = np.full(step.delta.shape, weight) if np.ndim(weight) == 0 else weight
        descend_at(theta, step.where, step.delta, learning_rate, weights)
