"""Predictions as CSV: the columns of the input, then what the model says of each row."""

import csv
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts import Predictions
from edgeflock.shared.data.unlabelled import UnlabelledData

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
