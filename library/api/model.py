"""The model to train: an import string, a class, a function, or a module."""

import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from edgeflock.shared.data.datasets import to_float32
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.losses import LOSSES, Loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from edgeflock.api.data import Data
    from edgeflock.api.graphs import Graphs


class Model:
    """A torch module with its loss.

    >>> Model("edgeflock.client.zoo:DigitsCNN").name
    'edgeflock.client.zoo:DigitsCNN'
    """

    def __init__(
        self,
        module: "str | Callable[[], nn.Module] | nn.Module",
        *,
        loss: "str | Loss | Callable[[Tensor, Tensor], Tensor]" = "cross_entropy",
        example: Any = None,
        weights: str = "",
        personal: Sequence[str] = (),
        lora: Mapping[str, object] | None = None,
    ) -> None:
        """`module` is "package.module:Name", a class or function that builds a module, or a module.

        A module is copied. `loss` is a name like model.loss, e.g. mse or a plug-in's. It may also be a
        Loss, or a function of (output, target) or (outputs, batch) to the batch mean, in torch tensors.
        `example` is (x, y) or x of a few samples: only its shape counts, and only without data to evaluate
        on. `weights` is a safetensors file to begin with. `personal` are names or patterns of parameters that
        each device trains for itself and never sends, e.g. ["head.*"]. With `lora`, e.g. {"rank": 8, "alpha":
        16, "targets": ["*.q"]}, adapters of these linear layers are trained, and all else is frozen.

        Raises ConfigError.
        """
        self.loss = loss if isinstance(loss, str) else LOSSES.register(loss)
        self.weights = weights
        self.personal = list(personal)
        self.lora = lora
        self.input = _shape_of(example)
        """The shape of one sample's x, or empty if it is unknown."""
        self.make: Callable[[], nn.Module] | None = None
        """Builds the module, if no import string does."""
        if isinstance(module, str):
            self.name = module
        elif _is_module(module):
            self.name = f"{type(module).__module__}:{type(module).__qualname__}"
            own: nn.Module = deepcopy(module)
            self.make = lambda: deepcopy(own)
        elif callable(module):
            owner, name = getattr(module, "__module__", "?"), getattr(module, "__qualname__", repr(module))
            self.name = f"{owner}:{name}"
            self.make = None if _can_be_imported(module, owner, name) else module
        else:
            raise ConfigError(
                f"Model({module!r:.80}): give a class or function that builds a torch module, a module, or "
                "'package.module:Name'"
            )

    @property
    def settings(self) -> dict[str, object]:
        """The settings of [model]."""
        return {
            "module": self.name,
            "loss": self.loss,
            "weights": self.weights,
            "input": self.input,
            "personal": self.personal,
            "lora": self.lora or {},
        }

    def graphs(self, data: "Data | str") -> "Graphs":
        """Return the training step and the evaluation in ONNX, checked against torch.

        `data` is (x, y) or a data URI. Servers export graphs themselves. Raises ConfigError or NotExportable,
        which names the obstacle.
        """
        from edgeflock.api.graphs import export_graphs

        return export_graphs(self.name, self.loss, self.make, data)


def model_of(model: "Model | str | Callable[[], nn.Module] | nn.Module") -> Model:
    """Return `model` as a Model."""
    return model if isinstance(model, Model) else Model(model)


def _is_module(module: object) -> "TypeGuard[nn.Module]":
    torch: Any = sys.modules.get("torch")  # without it there is no module
    return torch is not None and isinstance(module, torch.nn.Module)


def _can_be_imported(module: object, owner: str, name: str) -> bool:
    """Return whether another process can import the object under its name."""
    if owner == "__main__" or "." in name:
        return False
    try:
        return getattr(import_module(owner), name, None) is module
    except ImportError:
        return False


def _shape_of(example: Any) -> list[int]:
    if example is None:
        return []
    try:
        x = to_float32(np.asarray(example[0] if isinstance(example, tuple) else example))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"Model(example=...) is no array of samples: {error}") from error
    if x.ndim < 2:
        raise ConfigError(f"Model(example=...) has the shape {list(x.shape)}; give a few samples: [n, ...]")
    return list(x.shape[1:])
