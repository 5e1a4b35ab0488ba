"""Which parameters an update touches and the signs of its values, in one arithmetic-coded stream.

The largest entries of a gradient are no random set. The gradient of a layer is a sum of outer products, one
for each sample, so they crowd where active rows (neurons) and active columns (inputs) of its matrix cross,
and the entries of a row tend to have one sign. Which rows and columns that are changes slowly: who knows how
active each has been (activity.py) needs less for it. What the stream tells, and how, is in decisions.py; here
is what goes in and comes out, how much it may be, and what is refused.

Each set of signed entries has one stream. It takes time in proportion to the sizes of the tensors that have
entries and to rows x columns that have any. Where these are too many for the entries, nothing is gained over
Golomb's code, and encode gives up.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs.activity import Activity
from edgeflock.shared.codecs.compiled import handed
from edgeflock.shared.codecs.decisions import code
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange
from edgeflock.shared.model.layout import Layout

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


def encode(where: Indices, negative: Flags, layout: Layout, activity: Activity | None = None) -> bytes | None:
    """Code strictly increasing indices `where` (int64 [k]) and where values are `negative` (bool [k]), for
    whoever knows the same `activity`.

    None if they are too scattered for this code, or its stream would not be of _plausible length. None at all
    take no bytes.
    """
    if not where.size:
        return b""
    stream = handed(np.zeros(_longest(where.size) + 1, np.uint8))
    entries = handed(np.array(where, np.int64)), handed(np.array(negative, np.uint8))
    length = code(1, stream, handed(layout.grids), _past(activity), *entries)
    return bytes(stream[:length]) if _plausible(length, where.size) else None


def decode(
    octets: bytes, count: int, layout: Layout, activity: Activity | None = None
) -> tuple[Indices, Flags]:
    """(indices int64 [count], strictly increasing and in range; whether the value there is negative).

    Takes only what encode gives with the same `activity`. Allocates at most 250 bytes per announced entry,
    and only after the count has been held against the length of the stream, 30 per row and column of the
    largest tensor, and 10 for each number of `activity`.
    Raises IndexMalformed or IndexOutOfRange.
    """
    if not _plausible(len(octets), count):
        raise IndexMalformed(
            f"{len(octets)} bytes do not hold {count} entries: 1 to 64 bits each, and 64 bytes"
        )
    if count > layout.size:
        raise IndexOutOfRange(f"{count} entries for {layout.size} parameters")
    if not count:
        if octets:
            raise IndexMalformed(f"no entries take no bytes, not {len(octets)}")
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    stream = handed(np.array(np.frombuffer(octets, np.uint8)))
    where, negative = handed(np.zeros(count, np.int64)), handed(np.zeros(count, np.uint8))
    if code(0, stream, handed(layout.grids), _past(activity), where, negative) != len(octets):
        raise IndexMalformed(f"the stream does not hold {count} entries as an encoder writes them")
    return np.asarray(where, np.int64), np.asarray(negative, np.bool_)


def _past(activity: Activity | None) -> Any:
    return handed(np.zeros(0, np.int64) if activity is None else activity.astype(np.int64))


def _plausible(octets: int, count: int) -> bool:
    """Whether a stream has 1 to 64 bits for each entry, or up to 64 bytes more."""
    return count <= 8 * octets and 0 <= octets <= _longest(count)


def _longest(count: int) -> int:
    """Bytes."""
    return 8 * count + 64
