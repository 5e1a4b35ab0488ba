"""What an update must satisfy before it may touch the model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
class Step:
    """A decoded, admitted update: delta[i] belongs to parameter where[i]."""

    base: int
    where: Where
    delta: NDArray[np.float32]

    def touched(self) -> Where:
        """The parameters that this step changes: those with delta_k != 0, equation (3)."""
        if self.delta.all():
            return self.where
        changed = np.flatnonzero(self.delta)
        return changed if isinstance(self.where, slice) else self.where[changed]


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
        where = sparse.decode(update.indices, update.count, layout.size, update.index_mode)
        counts = layout.counts(where)
    delta = values.decode(update.values, counts, update.value_mode)
    if not np.isfinite(delta).all():
        raise NonFinite("the values hold NaN or infinity; lower the learning rate or check the data")
    return Step(update.base, where, delta)
