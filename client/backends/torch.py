"""Gradients with torch autograd, on the CPU or an accelerator."""

from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from edgeflock.client.backends.backend import Predictor
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.base_file import BaseFile
from edgeflock.shared.model.fields import Inputs, describe_shape
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.lora import Lora
from edgeflock.shared.model.modules.building import Make, seeded_random
from edgeflock.shared.model.torch_module import FlatModule


class TorchBackend:
    """A Backend over any torch module."""

    def __init__(
        self,
        model: str,
        loss: str,
        *,
        seed: int = 0,
        threads: int = 1,
        make: Make | None = None,
        accelerator: str = "",
        lora: Lora | None = None,
    ) -> None:
        """Build the module that `model` names or `make` builds, on torch's device `accelerator`.

        `accelerator` is e.g. "cuda" or "mps"; "": the CPU. `threads` sets torch's threads for the whole
        process; 0 keeps torch's default. With `lora`, only adapters are trained. Raises ConfigError.
        """
        if threads:
            torch.set_num_threads(threads)
        self._model = model
        with _open_device(accelerator):
            self._flat = FlatModule(model, loss, seed, make, lora)
        self._random = torch.Generator("cpu").manual_seed(seed).get_state()
        """The state of torch's random generator. Each device has its own."""
        self._draws = True
        """Whether the module draws random numbers in training, as dropout does. Each step updates it."""

    @property
    def layout(self) -> Layout:
        return self._flat.layout

    @property
    def base(self) -> Layout | None:
        """The layout of the frozen part, with adapters."""
        return self._flat.base

    def load_base(self, values: NDArray[np.float32]) -> None:
        """Take the frozen part, float32 [base.size]. On the CPU the backend uses the array itself."""
        self._flat.load_base(values)

    def hold_base(self, base: BaseFile) -> None:
        """Take the frozen part from its file, which stays mapped into memory."""
        self._flat.hold_base(base.arrays())

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        try:
            if not self._draws:
                return self._flat.gradient(theta, x, y)
            with seeded_random(self._random):
                result = self._flat.gradient(theta, x, y)
                before, self._random = self._random, torch.get_rng_state()
            self._draws = not torch.equal(before, self._random)
            return result
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._model} cannot train on inputs {describe_shape(x)} with targets {y.dtype}: {error}"
            ) from error

    def predictor(self, theta: NDArray[np.float32]) -> Predictor:
        return self._flat.predictor(theta)

    def evaluate(
        self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]
    ) -> tuple[float, float | None]:
        try:
            return self._flat.evaluate(theta, x, y)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._model} cannot be evaluated on inputs {describe_shape(x)} with targets {y.dtype}: "
                f"{error}"
            ) from error


def _open_device(accelerator: str) -> "torch.device | nullcontext[None]":
    """A context that builds modules on `accelerator`. Raises ConfigError if torch has no such device."""
    if not accelerator:
        return nullcontext()
    try:
        torch.zeros(1, device=accelerator)
        return torch.device(accelerator)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ConfigError(
            f"client.accelerator = {accelerator!r}: torch {torch.__version__} cannot use it here ({reason}); "
            "leave it out to train on the processor"
        ) from error
