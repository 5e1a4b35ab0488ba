"""A run whose model is named arrays: a file of initial values instead of a module, and its evaluation."""

import math
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.evaluation.model_scores import Evaluate, ModelScores
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.app import Arrays
from edgeflock.shared.settings.model import ModelSettings

Contents = dict[str, NDArray[np.generic]]

_STATISTICS = ("running_mean", "running_var")
"""The last part of the names of arrays that hold running statistics, as in PyTorch."""


def read(model: ModelSettings) -> tuple[Arrays, NDArray[np.float32]]:
    """Read (the arrays, theta: float32 [P + B]) from the file that model.module names. Raises ConfigError."""
    name = f"model.module = {model.module!r}"
    for setting in ("weights", "data", "input", "metrics"):
        if value := getattr(model, setting):
            raise ConfigError(
                f"model.{setting} = {value!r} is for a torch module, and {name} is not one: leave it out"
                + ("; to evaluate arrays, set model.evaluate to a function" if setting == "data" else "")
            )
    contents = _load(Path(model.arrays), name)
    try:
        arrays = Arrays.from_arrays(contents, _STATISTICS)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
    theta = arrays.flatten(contents)
    if not np.isfinite(theta).all():
        raise ConfigError(f"{name} holds NaN or infinity; use finite initial values")
    return arrays, theta


def load_evaluate(model: ModelSettings, arrays: Arrays) -> Evaluate | None:
    """Return the function of theta that model.evaluate names; None if it is not set. Raises ConfigError."""
    if not model.evaluate:
        return None
    name, _, attribute = model.evaluate.partition(":")
    if os.getcwd() not in sys.path:  # a console script has only its own folder in sys.path
        sys.path.append(os.getcwd())
    try:
        function = getattr(import_module(name), attribute)
    except Exception as error:  # a user's own module may raise anything
        raise ConfigError(
            f"model.evaluate = {model.evaluate!r}: {type(error).__name__}: {error}; "
            "name a function as package.module:function"
        ) from error
    if not callable(function):
        raise ConfigError(
            f"model.evaluate = {model.evaluate!r} is not a function, but {type(function).__name__}"
        )
    return partial(_evaluate, function, arrays)


def _evaluate(function: Callable[[Contents], Any], arrays: Arrays, theta: NDArray[np.float32]) -> ModelScores:
    result = function(arrays.split(theta))
    loss, accuracy = result if isinstance(result, tuple) else (result, None)
    return ModelScores(
        math.nan if loss is None else float(loss), None if accuracy is None else float(accuracy)
    )


def _load(path: Path, name: str) -> Contents:
    """Load the arrays of a file, in the file's order."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            tensors: Contents = load_file(path)
            return tensors
        with path.open("rb") as octets, np.load(octets) as file:
            # numpy.savez(file, *arrays) numbers arrays without names, as an ArrayRecord of a list does.
            numbered = file.files == [f"arr_{number}" for number in range(len(file.files))]
            return {key.removeprefix("arr_") if numbered else key: file[key] for key in file.files}
    except ImportError as error:
        raise ConfigError(f"{name} needs safetensors: pip install safetensors, or name a .npz") from error
    except Exception as error:  # zipfile, NumPy and safetensors share no exception class
        raise ConfigError(
            f"{name} cannot be read: {type(error).__name__}: {error}; "
            "name a .npz (numpy.savez) or .safetensors file"
        ) from error
