"""Staleness of each parameter, exact and in O(non-zeros) per update.

AdaComp (Hardy, Le Merrer, Sericola, 2017), equation (3): an update is computed from version j and applied at
version i. The staleness of parameter k is the number of updates between that changed it,

    sigma_k(i) = sum_{u=j}^{i-1} 1[delta_k(u) != 0].

With T_k(v) = the number of updates before version v that touched k, sigma_k(i) = T_k(i) - T_k(j). T_k(i) is
a counter. T_k(j) is a look-up in a rank dictionary over time. Versions are cut into blocks of B. Each block
has two planes over the parameters,

    C_k    T_k at the start of the block, modulo 2^c
    H_k    which of the block's B versions touched k, one bit each

    T_k(j) = C_k[block of j] + popcount(H_k[block of j], bits below j)     modulo 2^c

The modulus loses nothing: an update may lag by at most window - 1 versions. They touch a parameter at most
window - 1 < 2^c times. A push costs one pass over its non-zeros; a pull costs nothing. Every B versions, a
copy of the counters opens the next block.

Memory, bytes a parameter: (ceil(window / B) + 1) (B + c) / 8 + c / 8.

    window     2..256     B =  8, c =  8     67 at the default of 256
    window  257..65536    B = 64, c = 16    652 at 4,096
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.kernels import touch, weigh, weigh_and_descend
from edgeflock.server.descent.step import Index

Counts = NDArray[np.unsignedinteger]


class Staleness:
    """T_k over the last `window` versions of `size` parameters (all, or any contiguous slice).

    Starts at `version` with all counts zero. Not thread-safe: it has one writer.
    """

    def __init__(self, size: int, window: int = 256, version: int = 0) -> None:
        if not 2 <= window <= 65536:
            raise ValueError(f"window must be 2 to 65536 versions, not {window}")
        count, bits = (np.uint8, np.uint8) if window <= 256 else (np.uint16, np.uint64)
        self._count: type[np.unsignedinteger] = count
        self._bits: type[np.unsignedinteger] = bits
        self._mask = (1 << 8 * np.dtype(count).itemsize) - 1
        self._block = 8 * np.dtype(bits).itemsize
        # One block more than the window spans, so that the block of the oldest admitted version is complete.
        self._blocks = -(-window // self._block) + 1
        self._touches = np.zeros((self._blocks, size), bits)  # H
        self._before = np.zeros((self._blocks, size), count)  # C
        self._counts = np.zeros(size, count)  # T
        self.window = window
        self.start = version
        self.version = version

    @property
    def nbytes(self) -> int:
        """Memory of the planes and counters."""
        return self._touches.nbytes + self._before.nbytes + self._counts.nbytes

    @property
    def oldest(self) -> int:
        """The oldest version that an update may still be based on."""
        return max(self.start, self.version - self.window + 1)

    def sigma(self, indices: Index, base: int) -> Counts:
        """Return sigma_k(version) for each parameter at `indices`.

        Raises ValueError unless oldest <= base <= version. Admission refuses such updates earlier.
        """
        self._check(base)
        slot, bit = self._slot(base)
        then = np.bitwise_count(self._touches[slot][indices] & self._bits((1 << bit) - 1))
        sigma: Counts = self._counts[indices] - (self._before[slot][indices] + then)
        return sigma

    def weigh(
        self, indices: Index, delta: NDArray[np.float32], base: int, weight: np.float32, unit: int = 1
    ) -> NDArray[np.float32]:
        """Return weight / max(1, sigma_k / unit) delta_k in a new array. Equation (5) has `unit` 1.

        Raises ValueError as `sigma` does.
        """
        share = np.float32(unit)
        if isinstance(indices, slice):
            sigma = np.maximum(self.sigma(indices, base), 1).astype(np.float32)
            if unit > 1:
                sigma = np.maximum(sigma / share, np.float32(1))
            dense: NDArray[np.float32] = weight / sigma * delta
            return dense
        self._check(base)
        slot, bit = self._slot(base)
        gradient = np.empty(indices.size, np.float32)
        weigh(
            indices, delta, weight, share, self._counts, self._before[slot], self._touches[slot],
            (1 << bit) - 1, self._mask, gradient,
        )  # fmt: skip
        return gradient

    def descend(
        self,
        values: NDArray[np.float32],
        indices: Index,
        delta: NDArray[np.float32],
        base: int,
        weight: np.float32,
        unit: int = 1,
    ) -> None:
        """Subtract what `weigh` returns from `values` in place, and `touch`. Raises ValueError as `sigma`."""
        if isinstance(indices, slice):
            values -= self.weigh(indices, delta, base, weight, unit)
            self.touch(indices, delta)
            return
        self._check(base)
        (slot, bit), (history, mark) = self._slot(base), self._slot(self.version)
        weigh_and_descend(
            values, indices, delta, weight, unit, self._counts, self._before[slot], self._touches[slot],
            (1 << bit) - 1, self._mask, self._touches[history], 1 << mark,
        )  # fmt: skip
        self._advance()

    def touch(self, indices: Index, delta: NDArray[np.float32]) -> None:
        """Record that this version's update changes the parameters at `indices` by `delta`, and advance.

        An entry of zero changes nothing and does not count.
        """
        slot, bit = self._slot(self.version)
        history, mark = self._touches[slot], self._bits(1 << bit)
        if isinstance(indices, slice):
            changed = (delta != 0).astype(self._bits)
            np.add(self._counts, changed.astype(self._count), out=self._counts)
            history |= changed * mark
        else:
            touch(indices, delta, self._counts, history, mark)
        self._advance()

    def _check(self, base: int) -> None:
        if not self.version - self.window < base <= self.version or base < self.start:
            raise ValueError(f"base {base} is outside {self.oldest}..{self.version}")

    def _advance(self) -> None:
        """Go to the next version. At the end of a block, open the next one with the current counts."""
        self.version += 1
        if self.version % self._block == 0:
            following, _ = self._slot(self.version)
            self._before[following] = self._counts
            self._touches[following] = 0

    def _slot(self, version: int) -> tuple[int, int]:
        """(slot of the version's block, bit within the block)."""
        block, bit = divmod(version, self._block)
        return block % self._blocks, bit
