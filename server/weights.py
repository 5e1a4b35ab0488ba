"""The initial model of a run: a file of weights (model.weights), or the module's own initial weights."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.start import Start
from edgeflock.shared.model.torch_module import FlatModule


def first_model(flat: FlatModule, weights: str, seed: int) -> tuple[NDArray[np.float32], Start | None]:
    """Return (theta, how devices can make theta themselves, or None). Raises ConfigError.

    theta is read from the safetensors file `weights`, if given; else the module is built under `seed`.
    """
    return (_read(Path(weights), flat), None) if weights else flat.first_model(seed)


def _read(path: Path, flat: FlatModule) -> NDArray[np.float32]:
    """Read float32 [P + B] from a state_dict, also of half precision. Skips entries not in the layout."""
    import safetensors.torch

    name, module = f"model.weights = {str(path)!r}", flat.path
    try:
        tensors = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{name} cannot be read: {error}; name a safetensors file") from error
    expected = {tensor.name: tensor for tensor in flat.layout.tensors}
    if missing := [tensor for tensor in expected if tensor not in tensors]:
        raise ConfigError(f"{name} has no {missing[0]}, which {module} has: {_other(missing)}")
    if extra := sorted(tensors.keys() - expected.keys() - flat.module.state_dict().keys()):
        raise ConfigError(f"{name} has {extra[0]}, which {module} has not: {_other(extra)}")
    theta = np.empty(flat.layout.size, np.float32)
    for key, entry in expected.items():
        tensor = tensors[key]
        if tuple(tensor.shape) != entry.shape or not tensor.is_floating_point():
            found = f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")
            raise ConfigError(
                f"{name} has {key} as {found}, {module} as float32 {list(entry.shape)}; "
                "it must be of the same model"
            )
        theta[entry.start : entry.stop] = tensor.float().numpy().ravel()
    if not np.isfinite(theta).all():
        raise ConfigError(f"{name} holds NaN or infinity; name the weights of a model that has not diverged")
    return theta


def _other(names: list[str]) -> str:
    more = f" ({len(names) - 1} more)" if len(names) > 1 else ""
    return f"it must be of the same model{more}"
