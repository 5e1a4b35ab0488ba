"""Selection of the entries of a gradient that would change their parameter significantly.

Significance compression (D. Svoboda and A. Aggarwal, "Communication efficient distributed SGD", algorithm 2,
line 3), with the filter of approximate synchronous parallel (K. Hsieh et al., "Gaia", NSDI 2017): an update
is significant if |Update / Value| is beyond a threshold.
"""

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


def select_significant(accumulated: Vector, parameters: Vector, threshold: float) -> NDArray[np.int64]:
    """Return strictly increasing indices where |accumulated| > threshold |parameters|, of two float32 [P].

    The result may be empty; at threshold 0 it has all but exact zeros. An accumulated change of a parameter
    of 0 is significant at any threshold.
    """
    with np.errstate(over="ignore"):  # an infinite bound selects nothing
        return np.flatnonzero(np.abs(accumulated) > np.float32(threshold) * np.abs(parameters))


def decay_threshold(threshold: float, update: int) -> float:
    """Return threshold / sqrt(t) for the t-th update, t >= 1 (Gaia, section 4.2).

    As training converges, smaller changes matter.
    """
    return threshold / math.sqrt(update)
