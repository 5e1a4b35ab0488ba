"""What an update must satisfy before it may touch the model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.kernels import (
    BAD_PARAMETER,
    TOO_SHORT,
    TRAILING,
    all_finite,
    decode_golomb,
    spread_fields,
)
from edgeflock.server.staleness import Where
from edgeflock.shared import sparse, values
from edgeflock.shared.errors import (
    BaseExpired,
    BaseInFuture,
    ExpansionTooLarge,
    IndexMalformed,
    IndexOutOfRange,
    NonFinite,
)
from edgeflock.shared.layout import Layout
from edgeflock.shared.messages import Update

EXPANSION_PER_ENTRY = 12
"""Bytes that one entry takes once decoded: an int64 index and a float32 value."""

_GOLOMB_ERRORS = {
    TOO_SHORT: "the index stream ends before its last index",
    BAD_PARAMETER: "the index stream does not begin with a Golomb parameter of 1 to 2^31",
    TRAILING: "the index stream goes on after its last index",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A decoded, admitted update: delta[i] belongs to parameter where[i]."""

    base: int
    where: Where
    delta: NDArray[np.float32]


def admit(update: Update, layout: Layout, *, oldest: int, version: int, expansion_bytes: int) -> Step:
    """Decode `update`, or raise the Refused that says what is wrong with it. Cheap checks come first.

    oldest..version are the bases that may be admitted; `expansion_bytes` bounds what decoding allocates.
    """
    if update.base > version:
        raise BaseInFuture(f"base {update.base} is ahead of the model's version {version}; pull first")
    if update.base < oldest:
        raise BaseExpired(f"base {update.base} is older than {oldest}, the oldest admitted; pull again")
    if update.count * EXPANSION_PER_ENTRY > expansion_bytes:
        raise ExpansionTooLarge(
            f"{update.count} entries expand to {update.count * EXPANSION_PER_ENTRY} bytes; "
            f"limits.expansion_bytes is {expansion_bytes}"
        )
    if update.count > layout.size:
        raise IndexOutOfRange(f"{update.count} entries for {layout.size} parameters")
    where: Where
    if update.index_mode == sparse.DENSE:
        if update.count != layout.size or update.indices:
            raise IndexMalformed(
                f"a dense update has {layout.size} entries and no index bytes, "
                f"not {update.count} and {len(update.indices)}"
            )
        where, counts = slice(None), layout.counts(None)
    else:
        where = sparse.decode(update.indices, update.count, layout.size, update.index_mode, _decode_golomb)
        counts = layout.counts(where)
    delta = values.decode(update.values, counts, update.value_mode, _spread)
    if not all_finite(delta):
        raise NonFinite("the values hold NaN or infinity; lower the learning rate or check the data")
    return Step(update.base, where, delta)


def _decode_golomb(octets: bytes, count: int) -> sparse.Indices:
    """sparse.decode_golomb, compiled."""
    where = np.empty(count, np.int64)
    end = decode_golomb(np.frombuffer(octets, np.uint8), where)
    if end < 0:
        raise IndexMalformed(_GOLOMB_ERRORS[end])
    return where


def _spread(
    octets: bytes,
    width: int,
    table: NDArray[np.float32],
    scales: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> NDArray[np.float32]:
    """values.spread_fields, compiled."""
    spread = np.empty(counts.sum(), np.float32)
    spread_fields(np.frombuffer(octets, np.uint8), width, table, scales, counts, spread)
    return spread
