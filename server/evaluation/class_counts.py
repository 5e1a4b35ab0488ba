"""Counts of right predictions for each class, batch by batch."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.protocol.frames import MAX_CLASSES, Classes


class ClassCounts:
    """The counts over all batches since the last `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._classes = True
        """Whether all targets so far are classes, and not too many of them."""
        self._right, self._all = np.zeros((2, MAX_CLASSES), np.int64)

    def update(self, target: NDArray[np.generic], right: NDArray[np.bool_] | None) -> None:
        """Count a batch. `right` says for each target whether the model predicts it.

        Targets below 0 are ignored. One number a sample, 0 or 1, is a class.
        """
        if right is None or right.shape != target.shape:
            self._classes = False
            return
        if target.dtype.kind == "f" and not (target.size == len(target) and np.isin(target, (0, 1)).all()):
            self._classes = False
            return
        known = target >= 0  # type: ignore[operator]  # of numbers
        labels, hits = target[known].astype(np.int64), right[known]
        if labels.max(initial=0) >= MAX_CLASSES:
            self._classes = False
            return
        self._all += np.bincount(labels, minlength=MAX_CLASSES)
        self._right += np.bincount(labels[hits], minlength=MAX_CLASSES)

    @property
    def counts(self) -> Classes:
        """(right, all) of each class up to the last seen; empty if targets are no classes, or too many."""
        known = np.flatnonzero(self._all) if self._classes else self._all[:0]
        end = int(known[-1]) + 1 if known.size else 0
        return tuple(zip(self._right[:end].tolist(), self._all[:end].tolist(), strict=True))
