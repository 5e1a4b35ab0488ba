"""Detection of held-out rows in a device's training data, by hashes and without any row.

The server sends a sketch: the smallest hashes of its held-out rows, at most HASHES. The device hashes its own
rows and counts the matches (bottom-k sketch; Beyer et al., "On synopses for distinct-value estimation under
multiset operations", SIGMOD 2007). A row's hash is BLAKE2b of 8 bytes, keyed with the run's name. It covers
the inputs and the target as models get them, rounded to 12 bits of mantissa: so a stream's float32 and a
table's float64 agree.
"""

import math
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.fields import Inputs, arrays_by_name, rows

HASHES = 64
"""The most hashes of a sketch: 512 bytes."""

_OCTETS = 8

_ROWS = 1 << 17
"""The most stored rows that are hashed: some microseconds each."""

_BYTES = 1 << 28
"""The most bytes of stored inputs that are hashed."""

_DROPPED = 12
"""The dropped bits of the 24 bits of a float32's mantissa."""

_SIGMA = 4.0
"""Matches are reported if they are this many standard deviations above what repeated readings explain."""


class Sketch(NamedTuple):
    """A sketch of held-out rows."""

    rows: int
    repeated: int
    """Rows that equal other held-out rows: a device may have the same repeated readings by chance."""
    hashes: bytes
    """Ascending hashes of 8 bytes each, of rows that equal no other."""

    @classmethod
    def from_msgpack(cls, value: Any, name: str = "held_out") -> "Sketch":
        """Parse [rows, repeated, hashes] as unpacked from msgpack. Raises Malformed."""
        if type(value) is not list or [type(field) for field in value] != [int, int, bytes]:
            raise Malformed(f"{name} must be [rows, repeated, hashes]")
        count, repeated, hashes = value
        each = [hashes[offset : offset + _OCTETS] for offset in range(0, len(hashes), _OCTETS)]
        if not 0 < count < 1 << 63 or not 0 <= repeated <= count:
            raise Malformed(f"{name} must be of 1 row or more, of which not more are repeated")
        if len(hashes) % _OCTETS or len(each) > HASHES or each != sorted(set(each)):
            raise Malformed(f"{name}.hashes must be {HASHES} at most, of {_OCTETS} bytes, ascending")
        return cls(count, repeated, hashes)


def hashes_of(run: str, x: Inputs, y: NDArray[np.generic]) -> list[bytes]:
    """Return the hash of each row x [n, ...], y [n, ...] of the run of this name."""
    parts = [_octets(array) for array in (*arrays_by_name(x).values(), y)]
    key = run.encode()[:64]
    return [blake2b(b"".join(row), digest_size=_OCTETS, key=key).digest() for row in zip(*parts, strict=True)]


def _octets(array: NDArray[Any]) -> list[bytes]:
    """The hashed bytes of each row: integers as int64, others as the upper bits of float32."""
    flat = array.reshape(len(array), -1)
    if flat.dtype.kind in "biu":
        return [row.tobytes() for row in flat.astype("<i8")]
    bits = (flat.astype("<f4") + np.float32(0)).view("<u4")  # + 0 makes -0 the same zero
    rounded = (bits.astype(np.uint64) + (1 << (_DROPPED - 1))) >> _DROPPED
    return [row.tobytes() for row in rounded.astype("<u4")]


def sketch_of(run: str, x: Inputs, y: NDArray[np.generic]) -> Sketch | None:
    """Return the sketch of held-out rows; None if they have too many bytes, or are read one at a time."""
    indices = hashed_rows(x, len(y))
    if indices is None:
        return None
    hashes = hashes_of(run, rows(x, indices), y[indices])
    counts: dict[bytes, int] = {}
    for one in hashes:
        counts[one] = counts.get(one, 0) + 1
    alone = sorted(one for one, count in counts.items() if count == 1)
    return Sketch(len(hashes), len(hashes) - len(alone), b"".join(alone[:HASHES]))


def hashed_rows(x: Inputs, count: int) -> NDArray[np.int64] | None:
    """Return which rows of stored data are hashed; None: none."""
    arrays = arrays_by_name(x).values()
    if not count or not all(isinstance(array, np.ndarray) for array in arrays):
        return None
    if sum(array.nbytes for array in arrays) > _BYTES:
        return None
    return np.unique(np.linspace(0, count - 1, min(count, _ROWS)).astype(np.int64))


class Overlap:
    """Counts the held-out rows among a device's own rows."""

    def __init__(self, run: str, sketch: Sketch) -> None:
        self._run, self._sketch = run, sketch
        octets = sketch.hashes
        self._missing = {octets[offset : offset + _OCTETS] for offset in range(0, len(octets), _OCTETS)}
        self._hashes = len(self._missing)
        self._hashed = 0
        """The rows that were hashed, and"""
        self._own = 0
        """the rows that they represent."""

    def add(self, x: Inputs, y: NDArray[np.generic]) -> None:
        """Count rows that the device trains on."""
        self._own += len(y)
        self._hash(x, y)

    def _hash(self, x: Inputs, y: NDArray[np.generic]) -> None:
        self._hashed += len(y)
        if self._missing:
            self._missing.difference_update(hashes_of(self._run, x, y))

    def add_stored(self, x: Inputs, y: NDArray[np.generic]) -> None:
        """Count stored data; a sample of the rows is hashed, for speed."""
        if (indices := hashed_rows(x, len(y))) is not None:
            self._own += len(y)
            self._hash(rows(x, indices), y[indices])

    @property
    def rows(self) -> int:
        """The estimated held-out rows among the device's; 0 if repeated readings explain the matches."""
        found = self._hashes - len(self._missing)
        # `chance` is that of a held-out row to match a seen row, if readings repeat at the same rate.
        alike = min(1.0, (self._sketch.repeated + 1) / self._sketch.rows)
        chance = 1 - (1 - alike) ** (self._hashed / self._sketch.rows)
        expected = self._hashes * chance
        if found < 2 or found <= expected + _SIGMA * math.sqrt(expected * (1 - chance)):
            return 0
        return min(self._own, round(found / self._hashes * self._sketch.rows))
