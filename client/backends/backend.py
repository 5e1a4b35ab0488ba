"""The interface of a training engine on a device. Implementations need not use torch."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout


class Backend(Protocol):
    """Computes gradients of one model. A function of theta and the batch, and the model's own randomness."""

    @property
    def layout(self) -> Layout:
        """The layout of the model in this backend. It must equal the server's."""

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        """Return the gradient of the mean loss over the batch, in arrays that the next call may overwrite.

        theta is float32 [P + B], the parameters and the running statistics that the layout calls buffers; x
        is float32 [b, ...], or several fields; y has b targets. The returned statistics are those of the
        batch. theta is not modified. May raise ConfigError if the data do not fit the model.
        """


Predictor = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], ...]]
"""x [n, ...] -> the module's outputs, in arrays that the next call may overwrite."""


@runtime_checkable
class PredictingBackend(Protocol):
    """A Backend that can also evaluate the model: as a policy that acts, or on samples."""

    def predictor(self, theta: NDArray[np.float32]) -> Predictor:
        """Return the model at theta, float32 [P + B], as a callable. It is valid until the next backend call.

        May raise ConfigError if it does not fit.
        """

    def evaluate(
        self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]
    ) -> tuple[float, float | None]:
        """Return (mean loss, accuracy or None) of the model at theta, float32 [P + B], on n samples.

        May raise ConfigError if the samples do not fit.
        """
