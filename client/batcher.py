"""Stored samples -> mini-batches."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.datasets import Dataset


class Shuffled:
    """Batches drawn without replacement, reshuffled after each pass over the data."""

    def __init__(self, data: Dataset, random: np.random.Generator) -> None:
        self._data = data
        self._random = random
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)

    def take(self, size: int) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
        """(x, y) of `size` samples, or of all if there are fewer."""
        size = min(size, len(self._data))
        while self._order.size < size:
            self._order = np.concatenate((self._order, self._random.permutation(len(self._data))))
        chosen, self._order = self._order[:size], self._order[size:]
        return self._data.x[chosen], self._data.y[chosen]
