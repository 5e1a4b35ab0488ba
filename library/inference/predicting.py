"""A file of a trained model as a function of its inputs, and predictions as CSV.

safetensors need torch, ONNX needs onnxruntime.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts import ModelInfo, Predictions
from edgeflock.shared.data.unlabelled import UnlabelledData
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.settings.model import ARRAYS

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
        if result.info.loss == "next_token":
            raise ConfigError(
                f"{path} is a language model, and a table has no place for its tokens: use "
                f'edgeflock.load("{path}").module().logits(tokens) in Python'
            )
        if result.info.model.startswith(ARRAYS):
            raise ConfigError(
                f"{path} has the arrays of a run without a module: the code of its devices computes with them"
            )
        result.module()  # so that a module that cannot be imported is reported before the data are read
    except ImportError as error:
        raise ConfigError(
            f"{path} needs {error.name}: {install_command('server')}, or take a .onnx"
        ) from error
    return result.info, result.outputs


PREDICTION, PROBABILITY = "prediction", "probability"


def write(
    file: TextIO, samples: UnlabelledData, predictions: Predictions, *, every_class: bool = False
) -> None:
    """Write one line for each sample.

    `every_class` adds the probability of each class, not of the chosen one alone. Outputs of several numbers
    get a column each; a sequence of classes is one text.
    """
    header, columns = _columns(predictions, every_class=every_class)
    unused = _unique(samples.columns, header)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*samples.columns, *unused))
    for row, cells in zip(samples.rows(), zip(*columns, strict=True), strict=True):
        writer.writerow((*row, *cells))


def _columns(predictions: Predictions, *, every_class: bool) -> tuple[list[str], list[Sequence[Any]]]:
    """Return (the names of the columns, their values sample by sample)."""
    values, likely = predictions.values, predictions.probabilities
    if predictions.classes and values.ndim > 1:  # a class for each place of a sequence
        return [PREDICTION], [[" ".join(map(str, one.ravel().tolist())) for one in values]]
    flat = values.reshape(len(values), -1)
    numbered = [PREDICTION] if flat.shape[1] == 1 else [f"{PREDICTION}_{i}" for i in range(flat.shape[1])]
    header, columns = list(numbered), [column.tolist() for column in flat.T]
    if likely is None:
        return header, columns
    if not predictions.classes:  # the probability of a yes
        header += [name.replace(PREDICTION, PROBABILITY) for name in numbered]
        return header, columns + _rounded(likely.reshape(len(values), -1))
    header.append(PROBABILITY)
    columns += _rounded(likely.max(axis=1)[:, np.newaxis])
    if every_class:
        header += [f"{PROBABILITY} {name}" for name in predictions.classes]
        columns += _rounded(likely)
    return header, columns


def _rounded(values: NDArray[np.float32]) -> list[Sequence[Any]]:
    return [[f"{value:.6g}" for value in column] for column in values.T.tolist()]


def _unique(used: Sequence[str], wanted: list[str]) -> list[str]:
    """Return `wanted`, with underscores after names that the input has."""
    names = []
    for name in wanted:
        while name in used:
            name += "_"
        names.append(name)
    return names
