"""Which entries of the model a round sums. Only what is public decides: the run, the version, and past sums.

One half are the entries whose last mean was largest, the other half have their turn: the model's entries are
cut into blocks of T, and T rounds sum one entry of each block, without replacement, in an order drawn anew
each time. Both halves keep their positions from what a single device has. The server sends the choice, the
same to all, before devices code their values.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]

_DECAY = np.float32(0.99)
"""What is left of an entry's last mean after another round."""


class Coordinates:
    """Chooses the positions of each round. A restarted server knows no past sums, and begins anew."""

    def __init__(self, run: str, size: int, fraction: float) -> None:
        """About `fraction` of `size` entries are summed in a round; 1: all."""
        self._run, self._size = run, size
        self._count = max(2, round(fraction * size))
        self._scores = np.full(size, np.inf, np.float32)
        """The magnitude of each entry's last mean; infinite: it was in no sum yet."""

    def choose(self, version: int) -> Positions:
        """Return the positions of the sum that follows `version`, increasing."""
        if self._count >= self._size:
            return np.arange(self._size)
        half = self._count // 2
        largest = np.argpartition(self._scores, self._size - half)[self._size - half :]
        return np.union1d(largest, rotate(self._run, version, self._size, self._count - half))

    def record(self, positions: Positions, mean: NDArray[np.float32]) -> None:
        """Record the mean at the positions of a round."""
        self._scores *= _DECAY
        self._scores[positions] = np.abs(mean)


def rotate(run: str, version: int, size: int, count: int) -> Positions:
    """Return about `count` of `size` positions, increasing, others in each of size / count versions."""
    turns = max(1, round(size / count))
    cycle, turn = divmod(version, turns)
    key = hashlib.sha256(f"edgeflock rotation 1\n{cycle}\n{run}".encode()).digest()[:16]
    blocks = np.arange(-(-size // turns))
    first = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(blocks.size)
    positions = blocks * turns + ((first % np.uint64(turns)).astype(np.int64) + turn) % turns
    return positions[positions < size]
