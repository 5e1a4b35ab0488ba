"""Coding of the selected entries of a vector, indices and values, as two streams of bytes.

Updates hold such entries of a gradient, models those of a change. The streams are those of sparse.py and
values.py, or of grid.py, which codes signs with the indices. The encoder chooses the modes; the decoder takes
them as arguments.
"""

from math import log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.codecs.activity import Activity
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange, WrongDtype
from edgeflock.shared.model.layout import Layout

Selection = NDArray[np.int64] | slice
"""Strictly increasing indices, or slice(None) for all."""

_SCALE = values.CODINGS["scale"].mode


class Coded(NamedTuple):
    """Coded entries, as they travel."""

    index_mode: int
    value_mode: int
    indices: bytes
    values: bytes


def encode(
    entries: NDArray[np.float32],
    indices: NDArray[np.int64] | None,
    layout: Layout,
    index_mode: int,
    value_mode: int,
    activity: Activity | None = None,
) -> Coded:
    """Code `entries` (float32 [k], finite) at `indices` (int64 [k], strictly increasing; None: everywhere).

    The decoder must know the same `activity`. If a grid cannot code the entries, or not in fewer bytes,
    Golomb's code and a sign bit per value are used.
    """
    if index_mode == sparse.GRID:
        gridded = None if indices is None else _encode_grid(entries, indices, layout, value_mode, activity)
        if gridded is not None and _is_surely_short(gridded, entries.size, layout):
            return gridded
        plain = encode(entries, indices, layout, sparse.GOLOMB, values.CODINGS["sign"].mode)
        return plain if gridded is None else min(gridded, plain, key=_length)
    octets = values.encode(entries, layout.counts(indices), values.CODINGS.name_of(value_mode))
    if indices is None:
        return Coded(sparse.DENSE, value_mode, b"", octets)
    return Coded(index_mode, value_mode, sparse.encode(indices, layout.size, index_mode), octets)


def _encode_grid(
    entries: NDArray[np.float32],
    indices: NDArray[np.int64],
    layout: Layout,
    value_mode: int,
    activity: Activity | None,
) -> Coded | None:
    # If numba is installed, its import takes half a second, and nothing else on a device needs it.
    from edgeflock.shared.codecs import grid

    signed = grid.encode(indices, entries < 0, layout, activity)
    if signed is None:
        return None
    return Coded(sparse.GRID, value_mode, signed, values.encode(entries, layout.counts(indices), "scale"))


def _length(coded: Coded) -> int:
    return len(coded.indices) + len(coded.values)


def _is_surely_short(coded: Coded, count: int, layout: Layout) -> bool:
    """Whether `coded` is so far below Golomb's code for random indices and signs that this is not tried."""
    return 8 * _length(coded) < 0.9 * count * (log2(layout.size / max(count, 1)) + 2.5)


def decode(
    index_mode: int,
    value_mode: int,
    count: int,
    indices: bytes,
    octets: bytes,
    layout: Layout,
    activity: Activity | None = None,
) -> tuple[Selection, NDArray[np.float32]]:
    """Return (indices, float32 [count]: their values). Values may be NaN or infinity if the bytes hold them.

    Raises WrongDtype or an index's refusal if the bytes do not match what they announce. Memory is in
    proportion to the bytes and to the layout.
    """
    if count > layout.size:
        raise IndexOutOfRange(f"{count} entries for {layout.size} parameters")
    if (index_mode == sparse.GRID) != (value_mode == _SCALE):
        raise WrongDtype(
            "index mode 3 (grid) and value mode 5 (scale) are valid only together, "
            f"not modes {index_mode} and {value_mode}"
        )
    if index_mode == sparse.DENSE:
        if count != layout.size or indices:
            raise IndexMalformed(
                f"a dense update has {layout.size} entries and no index bytes, not {count} and {len(indices)}"
            )
        return slice(None), values.decode(octets, layout.counts(None), value_mode)
    if index_mode == sparse.GRID:
        from edgeflock.shared.codecs import grid

        selected, negative = grid.decode(indices, count, layout, activity)
        signed = values.decode(octets, layout.counts(selected), value_mode)
        np.negative(signed, out=signed, where=negative)
        return selected, signed
    selected = sparse.decode(indices, count, layout.size, index_mode)
    return selected, values.decode(octets, layout.counts(selected), value_mode)


def decode_values(
    coded: Coded, entries: NDArray[np.float32], indices: NDArray[np.int64] | None, layout: Layout
) -> NDArray[np.float32]:
    """Return float32 [k]: what the receiver decodes for `entries` at `indices`, encoded as `coded`."""
    decoded = values.decode(coded.values, layout.counts(indices), coded.value_mode)
    return np.copysign(decoded, entries) if coded.index_mode == sparse.GRID else decoded
