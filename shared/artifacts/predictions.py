"""The meaning of a model's outputs: classes with probabilities, or numbers in their units."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts.info import ModelInfo
from edgeflock.shared.data.samples import IGNORED
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.losses import LOSSES


class Predictions(NamedTuple):
    """Predictions of n samples."""

    values: NDArray[np.generic]
    """[n, ...]: names or numbers of classes; numbers in their units; or the outputs as they are."""
    probabilities: NDArray[np.float32] | None = None
    """float32 [n, classes, ...] of a classifier; None of anything else."""
    classes: tuple[str, ...] = ()
    """The names of the classes, in the order of the probabilities."""


def interpret(outputs: NDArray[np.float32], info: ModelInfo) -> Predictions:
    """Interpret the first output of a model, float32 [n, ...], as its run did in training.

    Outputs of cross entropy are logits [n, classes, ...]: probabilities are their softmax. Outputs of bce are
    logits of a yes or no: probabilities are their sigmoid. Raises ConfigError if the outputs do not have a
    place for each class.
    """
    data = info.data
    names = () if data is None else data.labels
    if names or info.loss == "cross_entropy":
        if outputs.ndim < 2 or (names and outputs.shape[1] != len(names)):
            raise ConfigError(
                f"the model's output is {list(outputs.shape[1:])}, and its run has {len(names)} classes: "
                "take the file again"
            )
        classes = names or tuple(map(str, range(outputs.shape[1])))
        chosen = outputs.argmax(axis=1)
        values: NDArray[np.generic] = np.array(classes)[chosen] if names else chosen
        return Predictions(values, _softmax(outputs), classes)
    if info.loss == "bce":
        likely = 1 / (1 + np.exp(-outputs.astype(np.float64)))
        return Predictions((outputs > 0).astype(np.int64), likely.astype(np.float32))
    if data is not None and data.target and _are_numbers(info.loss):
        mean, deviation = data.target
        return Predictions(outputs * np.float32(deviation) + np.float32(mean))
    return Predictions(outputs)


def _are_numbers(loss: str) -> bool:
    """Whether outputs are in deviations from the mean; so they are by an unknown loss of an early file."""
    known = LOSSES[loss] if loss in LOSSES else None
    return known is None or known.numbers


def _softmax(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)


def score(outputs: NDArray[np.float32], y: NDArray[np.generic], info: ModelInfo) -> dict[str, float]:
    """Compare outputs with targets y [n, ...], as the run's data have them.

    Returns {"accuracy": 0 to 1} of classes, {"error": the root mean square error in the targets' units} of
    numbers, {} of other outputs.
    """
    if y.dtype.kind == "i" and outputs.ndim == y.ndim + 1:
        counts = y != IGNORED
        return {"accuracy": float((outputs.argmax(axis=1) == y)[counts].mean())} if counts.any() else {}
    if outputs.size != y.size:
        return {}
    found, wanted = outputs.ravel().astype(np.float64), y.ravel().astype(np.float64)
    if info.loss == "bce":
        return {"accuracy": float(((found > 0) == (wanted > 0.5)).mean())}
    deviation = info.data.target[1] if info.data is not None and info.data.target else 1.0
    return {"error": float(deviation * np.sqrt(np.square(found - wanted).mean()))}
