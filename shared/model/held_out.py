"""Whether a device trains on the rows that the server evaluates on: it compares hashes, and tells no row.

The server sends a sketch: the least of the hashes of its held-out rows, at most HASHES of them. The device
hashes its own rows and counts which of the sketch it has (bottom-k sketch; Beyer et al., "On synopses for
distinct-value estimation under multiset operations", SIGMOD 2007). A row's hash is BLAKE2b of 8 bytes, keyed
with the run's name, over its inputs and its target as models get them, rounded to 12 bits of mantissa: a
stream's float32 and a table's float64 come to the same.
"""

import math
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.fields import Inputs, named, rows

HASHES = 64
"""In a sketch, at most: 512 bytes."""

_OCTETS = 8

_ROWS = 1 << 17
"""Of stored data that are hashed, at most: some microseconds each."""

_BYTES = 1 << 28
"""Of stored inputs that are hashed, at most."""

_DROPPED = 12
"""Of the 24 bits of a float32's mantissa."""

_SIGMA = 4.0
"""Standard deviations above what repeated readings explain from which matches are told of."""


class Sketch(NamedTuple):
    """Of held-out rows."""

    rows: int
    repeated: int
    """Rows that others among them equal: of readings that repeat, a device may have the same by chance."""
    hashes: bytes
    """8 bytes each, ascending, of rows that no other equals."""

    @classmethod
    def of(cls, value: Any, name: str = "held_out") -> "Sketch":
        """[rows, repeated, hashes] as msgpack unpacked it. Raises Malformed."""
        if type(value) is not list or [type(field) for field in value] != [int, int, bytes]:
            raise Malformed(f"{name} must be [rows, repeated, hashes]")
        count, repeated, hashes = value
        each = [hashes[at : at + _OCTETS] for at in range(0, len(hashes), _OCTETS)]
        if not 0 < count < 1 << 63 or not 0 <= repeated <= count:
            raise Malformed(f"{name} must be of 1 row or more, of which not more are repeated")
        if len(hashes) % _OCTETS or len(each) > HASHES or each != sorted(set(each)):
            raise Malformed(f"{name}.hashes must be {HASHES} at most, of {_OCTETS} bytes, ascending")
        return cls(count, repeated, hashes)


def hashes_of(run: str, x: Inputs, y: NDArray[np.generic]) -> list[bytes]:
    """Of each row x [n, ...], y [n, ...] of the run of this name."""
    parts = [_octets(array) for array in (*named(x).values(), y)]
    key = run.encode()[:64]
    return [blake2b(b"".join(row), digest_size=_OCTETS, key=key).digest() for row in zip(*parts, strict=True)]


def _octets(array: NDArray[Any]) -> list[bytes]:
    """What of each row is hashed: whole numbers as int64, others as the upper bits of float32."""
    flat = array.reshape(len(array), -1)
    if flat.dtype.kind in "biu":
        return [row.tobytes() for row in flat.astype("<i8")]
    bits = (flat.astype("<f4") + np.float32(0)).view("<u4")  # + 0: there is one zero
    rounded = (bits.astype(np.uint64) + (1 << (_DROPPED - 1))) >> _DROPPED
    return [row.tobytes() for row in rounded.astype("<u4")]


def sketch_of(run: str, x: Inputs, y: NDArray[np.generic]) -> Sketch | None:
    """Of held-out rows; None if they are too many bytes, or read one at a time."""
    where = looked_at(x, len(y))
    if where is None:
        return None
    hashes = hashes_of(run, rows(x, where), y[where])
    counts: dict[bytes, int] = {}
    for one in hashes:
        counts[one] = counts.get(one, 0) + 1
    alone = sorted(one for one, count in counts.items() if count == 1)
    return Sketch(len(hashes), len(hashes) - len(alone), b"".join(alone[:HASHES]))


def looked_at(x: Inputs, count: int) -> NDArray[np.int64] | None:
    """Which rows of stored data are hashed; None: none."""
    arrays = named(x).values()
    if not count or not all(isinstance(array, np.ndarray) for array in arrays):
        return None
    if sum(array.nbytes for array in arrays) > _BYTES:
        return None
    return np.unique(np.linspace(0, count - 1, min(count, _ROWS)).astype(np.int64))


class Overlap:
    """Counts the held-out rows among a device's own."""

    def __init__(self, run: str, sketch: Sketch) -> None:
        self._run, self._sketch = run, sketch
        octets = sketch.hashes
        self._missing = {octets[at : at + _OCTETS] for at in range(0, len(octets), _OCTETS)}
        self._hashes = len(self._missing)
        self._seen = 0
        """Rows that were looked at, and"""
        self._own = 0
        """those that they stand for."""

    def see(self, x: Inputs, y: NDArray[np.generic]) -> None:
        """Rows that the device trains on."""
        self._own += len(y)
        self._look(x, y)

    def _look(self, x: Inputs, y: NDArray[np.generic]) -> None:
        self._seen += len(y)
        if self._missing:
            self._missing.difference_update(hashes_of(self._run, x, y))

    def see_stored(self, x: Inputs, y: NDArray[np.generic]) -> None:
        """Stored data, of which so many are looked at as is quick."""
        if (where := looked_at(x, len(y))) is not None:
            self._own += len(y)
            self._look(rows(x, where), y[where])

    @property
    def rows(self) -> int:
        """Held-out rows among the device's, estimated, and no more than all its rows; 0 if no more match than
        repeated readings explain.
        """
        found = self._hashes - len(self._missing)
        # The chance that a row equals none of so many others, if it equals none of the held-out ones by p.
        alike = min(1.0, (self._sketch.repeated + 1) / self._sketch.rows)
        chance = 1 - (1 - alike) ** (self._seen / self._sketch.rows)
        expected = self._hashes * chance
        if found < 2 or found <= expected + _SIGMA * math.sqrt(expected * (1 - chance)):
            return 0
        return min(self._own, round(found / self._hashes * self._sketch.rows))
