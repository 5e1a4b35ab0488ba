"""Gradients by torch autograd, on the CPU."""

import numpy as np
import torch
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, described
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule, Make


class TorchBackend:
    """A Backend over any torch module."""

    def __init__(
        self, model: str, loss: str, *, seed: int = 0, threads: int = 1, make: Make | None = None
    ) -> None:
        """Build the module that `model` names, or `make` builds; have torch use `threads` cores in all of
        this process; 0: as many as it does. Raises ConfigError.
        """
        if threads:
            torch.set_num_threads(threads)
        self._model = model
        self._flat = FlatModule(model, loss, seed, make)

    @property
    def name(self) -> str:
        return f"torch {torch.__version__}"

    @property
    def layout(self) -> Layout:
        return self._flat.layout

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        try:
            return self._flat.gradient(theta, x, y)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._model} cannot train on inputs {described(x)} with targets {y.dtype}: {error}"
            ) from error
