"""Gradients by torch autograd, on the CPU."""

import numpy as np
import torch
from numpy.typing import NDArray

from edgeflock.client.backends.backend import Predictor
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, described
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.torch_module import FlatModule, Make, random_of


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
        self._random = torch.Generator().manual_seed(seed).get_state()
        """Of torch's random numbers, of which each device draws its own."""
        self._draws = True
        """Whether the module draws any, as dropout does, when it trains: its first step tells."""

    @property
    def name(self) -> str:
        return f"torch {torch.__version__}"

    @property
    def layout(self) -> Layout:
        return self._flat.layout

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        try:
            if not self._draws:
                return self._flat.gradient(theta, x, y)
            with random_of(self._random):
                result = self._flat.gradient(theta, x, y)
                before, self._random = self._random, torch.get_rng_state()
            self._draws = not torch.equal(before, self._random)
            return result
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._model} cannot train on inputs {described(x)} with targets {y.dtype}: {error}"
            ) from error

    def predictor(self, theta: NDArray[np.float32]) -> Predictor:
        return self._flat.predictor(theta)
