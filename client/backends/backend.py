"""What a training engine on a device must do. torch is one; others need not be torch."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

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


Predictor = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], ...]]
"""x [n, ...] -> what the module returns for it, in arrays that the next call may overwrite."""


@runtime_checkable
class Predicts(Protocol):
    """A Backend that can also use the model: so a device can act by it."""

    def predictor(self, theta: NDArray[np.float32]) -> Predictor:
        """The model at theta, float32 [P + B], ready to predict, until the next call of the backend. May
        raise ConfigError if it does not fit.
        """
