"""The result of a step on one batch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Gradient(NamedTuple):
    """The gradient of a batch. The next step may overwrite its arrays."""

    loss: float
    """Mean over the batch."""
    gradient: NDArray[np.float32]
    """d loss / d theta[:P]: float32 [P]."""
    statistics: NDArray[np.float32]
    """The batch's own running statistics: float32 [B]."""
    right: float | None = None
    """The part of the predictions that were right, 0 to 1; None: the loss has no accuracy."""
    samples: int | None = None
    """The number of samples; None: those of the batch."""
