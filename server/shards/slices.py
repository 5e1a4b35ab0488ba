"""Assigns parameters to shards: theta in contiguous slices of nearly equal size, one per model shard."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Index, OptimizerMemory, VectorState

Vector = NDArray[np.float32]
Entries = tuple[Index, Vector]
"""(indices, values), by the indices of a slice."""


class Slices:
    """The slices of P trained parameters. The running statistics after them belong to the last slice."""

    def __init__(self, trained: int, buffers: int, count: int) -> None:
        """`count` is at most P, so that no slice is empty."""
        self.bounds = np.array([trained * i // count for i in range(count + 1)])
        """The bounds of trained slices: [count + 1]."""
        self._ends = self.bounds.copy()
        self._ends[-1] += buffers
        """The bounds in all of theta."""

    def whole(self, theta: Vector) -> list[Vector]:
        """The slices of a vector of P + B numbers, as views."""
        return [theta[start:stop] for start, stop in pairwise(self._ends)]

    def trained(self, vector: Vector) -> list[Vector]:
        """The slices of P numbers or rows, as views."""
        return [vector[start:stop] for start, stop in pairwise(self.bounds)]

    def entries(self, indices: Index, values: Vector) -> list[Entries]:
        """Split an update by slices. Its indices increase strictly, or are slice(None) for all of P."""
        if isinstance(indices, slice):
            return [(slice(None), part) for part in self.trained(values)]
        places = self.split(indices)
        ends = np.cumsum([place.size for place in places])
        return list(zip(places, np.split(values, ends[:-1]), strict=True))

    def split(self, indices: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split indices of all of theta by slices. They must not decrease."""
        parts = np.split(indices, np.searchsorted(indices, self.bounds[1:-1]))
        return [part - start for part, start in zip(parts, self.bounds, strict=False)]

    def states(self, state: VectorState) -> list[VectorState]:
        """The initial states of the parts that together equal `state`."""
        theta, average, memory, buffers, regime, start = state
        count = len(self.bounds) - 1
        absent: list[Vector | None] = [None] * count
        averages = absent if average is None else self.whole(average)
        numbers = absent if memory.numbers is None else self.trained(memory.numbers)
        gathered = absent if memory.gathered is None else self.trained(memory.gathered)
        return [
            VectorState(
                theta,
                averages[i],
                OptimizerMemory(memory.kind, numbers[i], gathered[i], memory.waiting),
                buffers if i == count - 1 else 0,
                regime,
                start,
            )
            for i, theta in enumerate(self.whole(theta))
        ]
