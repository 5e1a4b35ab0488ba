"""The initial model of a run: weights of a file or of another run, or the module's own initial weights.

model.weights = "start.safetensors"     a state_dict, or a model of an earlier run
model.weights = "run:PATH@best"         the model of the best evaluation of the run in a directory; also
PATH@last, PATH@1200 (a version), or PATH alone, for the best
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.evaluation.best_model import BEST
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import rebuild_model
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.lora import is_adapter
from edgeflock.shared.model.personal import Personal, SplitLayout, personal_names
from edgeflock.shared.model.start import Start
from edgeflock.shared.model.torch_module import FlatModule

_RUN = "run:"


def first_model(flat: FlatModule, weights: str, seed: int) -> tuple[NDArray[np.float32], Start | None]:
    """Return (theta, how devices can make theta themselves, or None). Raises ConfigError.

    theta is read from the file or the run that `weights` names; else the module is built under `seed`. With
    adapters, the module's base is read from there, and theta is always made under `seed`.
    """
    if not weights:
        return flat.first_model(seed)
    theta = _read_run(weights, flat) if weights.startswith(_RUN) else _read(Path(weights), flat)
    if flat.base is None:
        return theta, None
    flat.load_base(theta)
    return flat.first_model(seed)


class PersonalLayers(NamedTuple):
    """A module split into shared and personal layers."""

    split: SplitLayout
    start: Start
    """The first values of the shared layers."""
    own: Personal


def personal_layers(flat: FlatModule, patterns: Sequence[str], seed: int) -> PersonalLayers:
    """Split the module as model.personal says. Raises ConfigError if devices cannot make such layers."""
    names = personal_names(flat.layout, patterns)
    _, start = flat.first_model(seed)
    if start is None:
        raise ConfigError(
            f"model.personal = {list(patterns)}: the initial weights of {flat.path} are no seeded draws, so "
            "that devices cannot make their layers; use torch's usual initialisation"
        )
    split = SplitLayout(flat.layout, names)
    return PersonalLayers(split, *split.describe(start))


def _read_run(weights: str, flat: FlatModule) -> NDArray[np.float32]:
    """Read float32 [P + B] of another run, averaged if that run keeps an average. Raises ConfigError."""
    place, at, version = weights.removeprefix(_RUN).rpartition("@")
    directory = Path(place if at else version)
    if not at or version == "best":
        return _read(directory / BEST, flat)
    name, file = f"model.weights = {weights!r}", directory / "journal.sqlite"
    if version != "last" and not (version.isascii() and version.isdecimal()):
        raise ConfigError(f"{name}: after @ comes best, last or the number of a version")
    if not file.is_file():
        raise ConfigError(
            f"{name}: {directory} holds no {file.name}; name another run's server.directory, or a file that "
            "`edgeflock model pull` wrote"
        )
    with closing(Journal(file)) as journal:
        run = journal.run()
        if run is None or run.layout != flat.whole:
            raise ConfigError(f"{name}: that run's model is not {flat.path}; it must be of the same model")
        past = rebuild_model(journal, run.layout, journal.version if version == "last" else int(version))
    return past.theta if past.average is None else past.average


def _read(path: Path, flat: FlatModule) -> NDArray[np.float32]:
    """Read float32 [P + B] from a state_dict, also of half precision. Skips entries not in the layout."""
    import safetensors.torch

    name, module = f"model.weights = {str(path)!r}", flat.path
    try:
        tensors = safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"{name} cannot be read: {error}; name a safetensors file") from error
    expected = {tensor.name: tensor for tensor in flat.whole.tensors}
    tensors = {key: tensor for key, tensor in tensors.items() if not is_adapter(key)}  # they are merged
    if missing := [tensor for tensor in expected if tensor not in tensors]:
        raise ConfigError(f"{name} has no {missing[0]}, which {module} has: {_other(missing)}")
    if extra := sorted(tensors.keys() - expected.keys() - flat.module.state_dict().keys()):
        raise ConfigError(f"{name} has {extra[0]}, which {module} has not: {_other(extra)}")
    theta = np.empty(flat.whole.size, np.float32)
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
