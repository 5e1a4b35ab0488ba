"""The result of a step on one batch, and a trial step before a run depends on it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, arrays_by_name, describe_shape


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


SAMPLES = 8
"""The samples of a trial."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial step."""

    samples: int
    shape: str
    """The shape of a sample's x."""
    loss: float
    milliseconds: float
    """The time of a second step: the first one includes initialisation."""

    def __str__(self) -> str:
        return (
            f"a step on {self.samples} samples of {self.shape}: loss {self.loss:.3g}, "
            f"{self.milliseconds:.3g} ms"
        )


def trial(
    gradient: Callable[[NDArray[np.float32], Inputs, NDArray[np.generic]], Gradient],
    theta: NDArray[np.float32],
    x: Inputs,
    y: NDArray[np.generic],
    clock: Callable[[], float] = time.perf_counter,
) -> Trial:
    """Take a step from theta. Raises ConfigError if its loss or its gradient is not finite."""
    loss, vector, *_ = gradient(theta, x, y)
    if not (np.isfinite(loss) and np.isfinite(vector).all()):
        furthest = max(float(np.abs(array).max()) for array in arrays_by_name(x).values())
        raise ConfigError(
            f"the loss of the first step is {loss:g}, and its gradient not finite: inputs reach "
            f"{furthest:.3g} and should be about 1; scale them, or look for a logarithm or a division "
            "in the model"
        )
    began = clock()
    gradient(theta, x, y)
    return Trial(len(y), describe_shape(x), float(loss), 1e3 * (clock() - began))
