"""Gradients of the server's own: of samples that are set apart for them, and evaluate nothing.

An accuracy that is measured on what updates are let through by would be too good.
"""

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.defence import DEFENCES, Trusted
from edgeflock.server.descent.steps import norm
from edgeflock.shared.data.datasets import Dataset, Stored
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import rows

if TYPE_CHECKING:
    from edgeflock.shared.model.torch_module import FlatModule

_EVERY = 4
"""Of so many held-out samples one is set apart at most,"""

_SAMPLES = 200
"""and about so many where there are more."""

_CLASSES = 16
"""Samples are in groups of a class each, unless there are more: a group takes a float32 a parameter."""

_LEAST = 20
"""Samples that must be set apart."""


def is_wanted(mode: str) -> bool:
    """Whether the defence of defence.mode goes by such a gradient."""
    return mode != "none" and DEFENCES.chosen(mode).trusts


def set_apart(held_out: Dataset | Stored) -> tuple[Dataset, Dataset]:
    """(Samples to trust, those that are left to evaluate on). Raises ConfigError if they are too few."""
    apart = np.arange(len(held_out)) % max(_EVERY, len(held_out) // _SAMPLES) == 0
    if apart.sum() < _LEAST:
        raise ConfigError(
            f"defence.mode needs {_EVERY * _LEAST} held-out samples at least, of which it sets {_LEAST} "
            f"apart, and model.data has {len(held_out)}; name more, or set defence.mode = 'clip'"
        )
    trusted, rest = (
        Dataset(rows(held_out.x, np.flatnonzero(chosen)), held_out.y[chosen], described=held_out.described)
        for chosen in (apart, ~apart)
    )
    return trusted, rest


class Look:
    """What to trust of a model: gradients of samples, and how it moved since the last look."""

    def __init__(self, flat: "FlatModule", samples: Dataset) -> None:
        self._flat, self._samples = flat, samples
        self._before: NDArray[np.float32] | None = None

    def __call__(self, version: int, theta: NDArray[np.float32]) -> Trusted:
        """At theta [P + B], the model of `version`: the gradient of the module, a group a class, if there are
        few. A group whose gradient is no number says nothing.

        Logits are divided by their own deviation, if it is above 1: as the model gets sure of its predictions
        the gradient fades, and what is left of it is of a few hard samples and changes from step to step. Of
        logits no larger than that it is of all samples, and still of what the model has yet to learn.
        """
        flat, samples = self._flat, self._samples
        temperature = max(1.0, flat.spread(theta, samples.x)) if flat.predicts else 1.0
        groups = list(_groups(samples.y))
        directions = np.zeros((flat.layout.parameters.size, len(groups) + 1), np.float32)
        for column, chosen in enumerate(groups):
            x, y = rows(samples.x, chosen), samples.y[chosen]
            directions[:, column] = _unit(flat.gradient(theta, x, y, temperature=temperature).gradient)
        trained = theta[: len(directions)]
        if self._before is not None:
            directions[:, -1] = _unit(self._before - trained)
        self._before = trained.copy()
        return Trusted(version, directions)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of length 1; 0 if it is 0, or no number."""
    length = norm(vector)
    if not length or not isfinite(length):
        return np.zeros_like(vector)
    return (vector / np.float64(length)).astype(np.float32)


def _groups(y: NDArray[np.generic]) -> list[NDArray[np.int64]]:
    """The places of the samples of each."""
    if y.ndim == 1 and y.dtype.kind == "i":
        classes = np.unique(y)
        if len(classes) <= _CLASSES:
            return [np.flatnonzero(y == one) for one in classes]
    return [np.arange(len(y))]
