"""A trained model as a safetensors file, which torch, Keras and NumPy read."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from edgeflock.shared.artifacts.info import ModelInfo, digest_of
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import NO_EXTRA_STATE, ExtraState
from edgeflock.shared.model.lora import is_adapter


class SavedModel(NamedTuple):
    """The contents of a file."""

    info: ModelInfo
    theta: NDArray[np.float32]
    """float32 [P + B]."""
    rest: Mapping[str, NDArray[np.generic]]
    """The tensors of the module's state that are not in theta."""


def encode(info: ModelInfo, theta: NDArray[np.float32], extra: ExtraState = NO_EXTRA_STATE) -> bytes:
    """Encode a model, theta float32 [P + B]. With `extra`, load_state_dict takes the file as it is."""
    tensors: dict[str, NDArray[np.generic]] = {
        t.name: theta[t.start : t.stop].reshape(t.shape) for t in info.layout.tensors
    }
    tensors |= {name: tensors[other] for name, other in extra.tied.items()}
    tensors |= extra.constants
    return safetensors.numpy.save(tensors, replace(info, digest=digest_of(theta)).metadata())


def encode_adapters(model: SavedModel) -> bytes:
    """Encode the adapters of a model without its weights, each as LAYER.lora_A or LAYER.lora_B."""
    adapters = {name: np.ascontiguousarray(values) for name, values in model.rest.items() if is_adapter(name)}
    return safetensors.numpy.save(adapters, replace(model.info, digest=digest_of(model.theta)).metadata())


def load(path: Path) -> SavedModel:
    """Read a model. Raises ConfigError if the file is damaged, or has no description."""
    name = str(path)
    if not path.exists():
        raise ConfigError(
            f"{name}: no such file; a run that was evaluated has best.safetensors in its "
            "folder, such as edgeflock-run"
        )
    try:
        with safetensors.safe_open(name, "np") as file:
            info = ModelInfo.read(file.metadata() or {}, name)
            tensors: dict[str, NDArray[np.generic]] = {key: file.get_tensor(key) for key in file.keys()}
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{name} cannot be read: {error}; name a safetensors file of a run") from error
    theta = np.empty(info.layout.size, np.float32)
    for tensor in info.layout.tensors:
        values = tensors.pop(tensor.name, None)
        if values is None or values.shape != tensor.shape:
            held = "is missing" if values is None else f"has the shape {list(values.shape)}"
            raise ConfigError(f"{name}: {tensor.name} {held}; take the file again")
        theta[tensor.start : tensor.stop] = values.astype(np.float32, copy=False).ravel()
    if info.digest not in ("", digest_of(theta)):
        raise ConfigError(f"{name}: its weights are not those that were saved (sha256); take the file again")
    return SavedModel(info, theta, tensors)
