"""The result of one evaluation of a model."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.protocol.frames import Classes


class ModelScores(NamedTuple):
    """Loss, accuracy, metrics by name, and the right predictions of each class, as far as they are known."""

    loss: float
    accuracy: float | None = None
    metrics: Mapping[str, float | None] = {}
    classes: Classes = ()


Evaluate = Callable[[NDArray[np.float32]], ModelScores]
"""Evaluates theta, float32 [P + B]."""
