"""A file of a trained model as a function of its inputs: safetensors with torch, ONNX with onnxruntime."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts import ModelInfo
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.fields import Inputs

if TYPE_CHECKING:
    from edgeflock.api.result import Result

Computes = Callable[[Inputs, int], NDArray[np.float32]]
"""(x, the number of samples) -> outputs, float32 [n, ...]."""


def load(path: "str | Path") -> "Result":
    """Load a model that an Edgeflock server or `Result.save` wrote as a safetensors file.

    `load(path).predict("csv:new.csv")` predicts, `load(path).module()` is the torch module, whose code must
    be importable. Raises ConfigError.
    """
    from edgeflock.api.model import Model
    from edgeflock.api.result import Result
    from edgeflock.shared.artifacts import safetensors_file
    from edgeflock.shared.model.layout import ExtraState
    from edgeflock.shared.protocol.frames import Evaluation

    saved = safetensors_file.load(Path(path))
    info, known = saved.info, saved.info.evaluation
    evaluations = []
    if known is not None:
        loss, accuracy, metrics = (known.get(key) for key in ("loss", "accuracy", "metrics"))
        evaluations.append(
            Evaluation(int(known.get("version", info.version)), 0.0, loss, accuracy, 0, 0, metrics or {})
        )
    return Result(
        model=Model(info.model, loss=info.loss or "cross_entropy"),
        layout=info.layout,
        run=info.run,
        version=info.version,
        theta=saved.theta,
        extras=ExtraState({}, saved.rest),
        data=info.data,
        evaluations=evaluations,
    )


def opened(path: Path) -> tuple[ModelInfo, Computes]:
    """Return (the description of a model, the function that computes it). Raises ConfigError."""
    if path.suffix == ".onnx":
        try:
            from edgeflock.shared.artifacts import onnx_file
        except ImportError as error:
            raise ConfigError(f"{path} needs {error.name}: {install_command('onnx')}") from error
        info, outputs = onnx_file.load(path)
        return info, lambda x, count: onnx_file.in_batches(outputs, x, count)
    try:
        result = load(path)
        result.module()  # so that a module that cannot be imported is reported before the data are read
    except ImportError as error:
        raise ConfigError(
            f"{path} needs {error.name}: {install_command('server')}, or take a .onnx"
        ) from error
    return result.info, result.outputs
