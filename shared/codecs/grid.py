"""Coding of an update's indices and of the signs of its values, in one arithmetic-coded stream.

The largest entries of a gradient are not a random set. The gradient of a layer is a sum of outer products,
one for each sample. So the entries concentrate where active rows (neurons) and active columns (inputs) of its
matrix cross. The entries of a row tend to have one sign. The active rows and columns change slowly, so
knowledge of past activity (activity.py) saves bytes. decisions.py defines the stream; this module has its
arguments, limits and refusals.

Each set of signed entries has one stream. Its time is in proportion to the sizes of the tensors with entries,
and to their rows x columns with entries. If these are too many for the entries, encode returns None: the
stream would not be shorter than Golomb's code.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs.activity import Activity
from edgeflock.shared.codecs.compiled import to_native
from edgeflock.shared.codecs.decisions import code
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange
from edgeflock.shared.model.layout import Layout

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


def encode(
    indices: Indices, negative: Flags, layout: Layout, activity: Activity | None = None
) -> bytes | None:
    """Code strictly increasing `indices` (int64 [k]) and the signs of values `negative` (bool [k]).

    The decoder must know the same `activity`. Returns None if the entries are too scattered for this code, or
    if its stream would have no plausible length. No entries take no bytes.
    """
    if not indices.size:
        return b""
    stream = to_native(np.zeros(_max_length(indices.size) + 1, np.uint8))
    entries = to_native(np.array(indices, np.int64)), to_native(np.array(negative, np.uint8))
    length = code(1, stream, to_native(layout.grids), _activity_array(activity), *entries)
    return bytes(stream[:length]) if _is_plausible(length, indices.size) else None


def decode(
    octets: bytes, count: int, layout: Layout, activity: Activity | None = None
) -> tuple[Indices, Flags]:
    """Return (indices int64 [count], strictly increasing and in range; whether each value is negative).

    Accepts only what encode gives with the same `activity`. Checks the count against the stream's length
    before it allocates. Allocates at most 250 bytes per announced entry, 30 per row and column of the largest
    tensor, and 10 for each number of `activity`. Raises IndexMalformed or IndexOutOfRange.
    """
    if not _is_plausible(len(octets), count):
        raise IndexMalformed(
            f"{len(octets)} bytes do not hold {count} entries: these take 1 to 64 bits each, plus up to "
            "64 bytes"
        )
    if count > layout.size:
        raise IndexOutOfRange(f"{count} entries for {layout.size} parameters")
    if not count:
        if octets:
            raise IndexMalformed(f"no entries take no bytes, not {len(octets)}")
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    stream = to_native(np.array(np.frombuffer(octets, np.uint8)))
    indices, negative = to_native(np.zeros(count, np.int64)), to_native(np.zeros(count, np.uint8))
    if code(0, stream, to_native(layout.grids), _activity_array(activity), indices, negative) != len(octets):
        raise IndexMalformed(f"the stream does not hold {count} entries as an encoder writes them")
    return np.asarray(indices, np.int64), np.asarray(negative, np.bool_)


def _activity_array(activity: Activity | None) -> Any:
    return to_native(np.zeros(0, np.int64) if activity is None else activity.astype(np.int64))


def _is_plausible(octets: int, count: int) -> bool:
    """Whether a stream has 1 to 64 bits for each entry, plus up to 64 bytes."""
    return count <= 8 * octets and 0 <= octets <= _max_length(count)


def _max_length(count: int) -> int:
    """The most bytes of a stream of `count` entries."""
    return 8 * count + 64
