"""Trusted gradients: the server computes them on held-out samples that it excludes from evaluation.

An accuracy on the samples that decide which updates count would be too high.
"""

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.defence import DEFENCES, Trusted
from edgeflock.server.descent.kernels import norm
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import rows

if TYPE_CHECKING:
    from edgeflock.shared.model.torch_module import FlatModule

_INTERVAL = 4
"""At most one of this many held-out samples is set apart."""

_SAMPLES = 200
"""About how many samples are set apart, where there are more."""

_CLASSES = 16
"""Up to this many classes, each class is a group. A group takes a float32 a parameter."""

_MINIMUM = 20
"""The fewest samples that may be set apart."""


def is_wanted(mode: str) -> bool:
    """Whether the defence that defence.mode names uses trusted gradients."""
    return mode != "none" and DEFENCES.resolve(mode).trusts


def split_trusted(held_out: Dataset) -> tuple[Dataset, Dataset]:
    """Return (trusted samples, samples to evaluate on). Raises ConfigError if there are too few."""
    is_trusted = np.arange(len(held_out)) % max(_INTERVAL, len(held_out) // _SAMPLES) == 0
    if is_trusted.sum() < _MINIMUM:
        raise ConfigError(
            f"defence.mode needs at least {_INTERVAL * _MINIMUM} held-out samples, and model.data has "
            f"{len(held_out)}; add samples, or set defence.mode = 'clip'"
        )
    return held_out.subset(np.flatnonzero(is_trusted)), held_out.subset(np.flatnonzero(~is_trusted))


class TrustedGradients:
    """Computes the trusted directions: gradients of samples, and the model's movement since the last call."""

    def __init__(self, flat: "FlatModule", samples: Dataset) -> None:
        self._flat, self._samples = flat, samples
        self._previous: NDArray[np.float32] | None = None

    def __call__(self, version: int, theta: NDArray[np.float32]) -> Trusted:
        """Return the trusted directions at theta [P + B], the model of `version`.

        There is one gradient for each class if there are few classes, else one in all. A gradient that is
        not finite becomes zero. Logits are divided by their standard deviation if it is above 1. Otherwise a
        confident model's gradient fades: it comes from a few hard samples and changes from step to step.
        """
        flat, samples = self._flat, self._samples
        temperature = max(1.0, flat.output_deviation(theta, samples.x)) if flat.predicts else 1.0
        groups = list(_groups(samples.y))
        directions = np.zeros((flat.layout.parameters.size, len(groups) + 1), np.float32)
        for column, chosen in enumerate(groups):
            x, y = rows(samples.x, chosen), samples.y[chosen]
            directions[:, column] = _unit(flat.gradient(theta, x, y, temperature=temperature).gradient)
        trained = theta[: len(directions)]
        if self._previous is not None:
            directions[:, -1] = _unit(self._previous - trained)
        self._previous = trained.copy()
        return Trusted(version, directions)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale `vector` to length 1. Return zeros if its length is 0 or not finite."""
    length = norm(vector)
    if not length or not isfinite(length):
        return np.zeros_like(vector)
    return (vector / np.float64(length)).astype(np.float32)


def _groups(y: NDArray[np.generic]) -> list[NDArray[np.int64]]:
    """Return the sample indices of each group: one group a class, or a single group."""
    if y.ndim == 1 and y.dtype.kind == "i":
        classes = np.unique(y)
        if len(classes) <= _CLASSES:
            return [np.flatnonzero(y == one) for one in classes]
    return [np.arange(len(y))]
