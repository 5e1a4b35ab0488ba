"""A device's own held-out samples, on which it evaluates the model (evaluation.on_devices)."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import PredictingBackend
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.model.fields import rows
from edgeflock.shared.protocol.messages import Facts

_SEED = 0x5EED
"""The seed of the choice of samples: the same at each start of a device."""

_BATCH = 1000
"""Samples that are read at a time."""


@dataclass(slots=True)
class OwnTest:
    """Samples that the device does not train on, and the last evaluation on them."""

    data: Dataset
    places: NDArray[np.int64]
    """The rows of `data` that are held out, in order."""
    backend: PredictingBackend
    facts: Facts = field(default_factory=dict)
    """eval.loss, eval.accuracy where there are classes, and eval.num-examples."""

    def evaluate(self, theta: NDArray[np.float32]) -> tuple[float, float | None]:
        """Evaluate the model at theta, float32 [P + B]: return (mean loss, accuracy or None)."""
        count, loss, right = len(self.places), 0.0, 0.0
        accuracy: float | None = None
        for start in range(0, count, _BATCH):
            chosen = self.places[start : start + _BATCH]
            found, accuracy = self.backend.evaluate(theta, rows(self.data.x, chosen), self.data.y[chosen])
            loss += found * len(chosen) / count
            right += 0.0 if accuracy is None else accuracy * len(chosen) / count
        facts: Facts = {"eval.num-examples": count}
        if np.isfinite(loss):
            facts["eval.loss"] = loss
        if accuracy is not None:
            accuracy = facts["eval.accuracy"] = right
        self.facts = facts
        return loss, accuracy


def divide(count: int, part: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide rows 0 to count - 1 into those to train on and those to hold out, at least one of each.

    Few samples are all trained on.
    """
    held = int(count * part)
    if held == 0:
        return np.arange(count), np.zeros(0, np.int64)
    order = np.random.default_rng(_SEED).permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])
