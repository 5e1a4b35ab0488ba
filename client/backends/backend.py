"""What a training engine on a device must do. torch is one; others need not be torch."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout


class Backend(Protocol):
    """Computes gradients for one model. Pure in theta and the batch, but for the model's own randomness."""

    @property
    def name(self) -> str:
        """For people, e.g. "torch 2.13.0"."""

    @property
    def layout(self) -> Layout:
        """How this backend lays the model out; the server's must be equal."""

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        """The gradient of the mean loss over the batch, in arrays that the next call may overwrite.

        theta is float32 [P + B], the parameters and the running statistics that the layout calls buffers; x
        is float32 [b, ...], or several fields; y has b targets. The statistics are the batch's own; theta
        stays as it is. May raise ConfigError if the data do not fit the model.
        """
