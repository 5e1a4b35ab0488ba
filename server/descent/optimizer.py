"""How the step is taken once its rate is known."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.kernels import descend as descend_at
from edgeflock.server.descent.step import Where


def descend(theta: NDArray[np.float32], where: Where, delta: NDArray[np.float32], rate: np.float32) -> None:
    """theta_k <- theta_k - rate delta_k for the parameters at `where`, in place.

    float32 throughout, one rounding an operation, so that a replay gives the same bits.
    """
    if isinstance(where, slice):
        theta -= rate * delta
    else:
        descend_at(theta, where, delta, rate)
