"""What a step on one batch came to."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Gradient(NamedTuple):
    """Arrays that whoever computed them may overwrite at the next step."""

    loss: float
    """Mean over the batch."""
    gradient: NDArray[np.float32]
    """d loss / d theta[:P]: float32 [P]."""
    statistics: NDArray[np.float32]
    """The batch's own running statistics: float32 [B]."""
    right: float | None = None
    """The part of the predictions that were right, 0 to 1; None: the loss knows no right and wrong."""
    samples: int | None = None
    """How many it is of; None: those of the batch."""
