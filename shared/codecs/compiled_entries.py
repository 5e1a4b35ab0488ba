"""The decoder of entries.py for usual updates, compiled by numba. The server uses it.

It gives the same result, and leaves to the other whatever it does not know or finds invalid. Only entries.py
defines what is valid. The loops avoid branches that depend on the data, because about half of these would be
mispredicted.
"""

import numba as nb
import numpy as np
from numba import float32, int64, uint8, uint32
from numpy.typing import NDArray

from edgeflock.shared.codecs import entries, grid, sparse, values
from edgeflock.shared.codecs.compiled_golomb import decode_golomb
from edgeflock.shared.errors import NonFinite
from edgeflock.shared.model.layout import Layout

_OCTETS = nb.types.Array(uint8, 1, "C", readonly=True)
_INDICES = nb.types.Array(int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(float32, 1, "C", readonly=True)
_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)

VALUE_MODES = {values.CODINGS[name].mode for name in ("int8", "codebook4", "sign")}
"""Value modes that are known here, together with Golomb-coded indices."""

SCALE_MODE = values.CODINGS["scale"].mode
"""The value mode that belongs to grid-coded indices."""


def decode(
    index_mode: int, value_mode: int, count: int, indices: bytes, octets: bytes, layout: Layout
) -> tuple[entries.Selection, NDArray[np.float32]]:
    """Return what `entries.decode` returns, with the same refusals, and NonFinite for NaN or infinity."""
    usual = decode_usual(index_mode, value_mode, count, indices, octets, layout)
    if usual is not None:
        return usual
    selected, decoded = entries.decode(index_mode, value_mode, count, indices, octets, layout)
    if not np.isfinite(decoded).all():
        raise NonFinite("the values hold NaN or infinity; lower the learning rate or check the data")
    return selected, decoded


def decode_usual(
    index_mode: int, value_mode: int, count: int, indices: bytes, octets: bytes, layout: Layout
) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
    """Decode a usual update. None: it is of another kind, or invalid. For a wrong grid, raise its refusal."""
    if not octets or count > 8 * len(indices) or count > layout.size:
        return None
    codes, decoded = np.frombuffer(octets, np.uint8), np.empty(count, np.float32)
    if index_mode == sparse.GRID and value_mode == SCALE_MODE:
        selected, negative = grid.decode(indices, count, layout)
        fine = _spread_scales(selected, negative, codes, layout.bounds, values.STEPS, decoded)
    elif index_mode == sparse.GOLOMB and value_mode in VALUE_MODES:
        selected = np.empty(count, np.int64)
        stream = np.frombuffer(indices, np.uint8)
        # Called from here: numba would not notice a change of a function in another file.
        fine = decode_golomb(stream, selected)
        fine = fine and _decode_update(codes, value_mode, layout.bounds, selected, decoded)
    else:
        return None
    return (selected, decoded) if fine else None


@nb.njit(nb.boolean(_OCTETS, int64, _INDICES, _INDICES, float32[::1]), cache=True)
def _decode_update(value_octets, mode, bounds, indices, delta):
    """Fill `delta` from int8 (mode 2), codebook4 (3) or sign (4) values at increasing `indices`.

    Return False if they are invalid: an index out of range, a wrong length, NaN or infinity.
    """
    count, tensors = indices.size, bounds.size - 1
    if count > 0 and indices[count - 1] >= bounds[tensors]:
        return False

    # How many values each tensor has, and how many tensors have one.
    counts, present, i = np.zeros(tensors, np.int64), 0, 0
    for tensor in range(tensors):
        first = i
        while i < count and indices[i] < bounds[tensor + 1]:
            i += 1
        counts[tensor] = i - first
        present += i > first

    width = 8 if mode == 2 else 4 if mode == 3 else 1
    numbers = present + (8 if mode == 3 else 0)  # bfloat16: scales, then levels
    if value_octets.size != 2 * numbers + (count * width + 7) // 8:
        return False
    words = np.empty(numbers, np.uint32)
    for n in range(numbers):
        words[n] = uint32(value_octets[2 * n]) << uint32(16) | uint32(value_octets[2 * n + 1]) << uint32(24)
    scales = words.view(np.float32)

    table = np.empty(1 << width, np.float32)
    for field in range(1 << width):
        if mode == 2:
            table[field] = field - 256 * (field > 127)
        elif mode == 3:
            level = scales[present + (field & 7)]
            table[field] = level if field < 8 else -level
        else:
            table[field] = 1 - 2 * field

    i, bit, at, mask = 0, 16 * numbers, 0, (1 << width) - 1
    for tensor in range(tensors):
        if counts[tensor] == 0:
            continue
        scale = scales[at]
        at += 1
        for _ in range(counts[tensor]):
            delta[i] = scale * table[value_octets[bit >> 3] >> (8 - width - (bit & 7)) & mask]
            bit += width
            i += 1

    strange = 0
    for word in delta.view(np.uint32):  # integers, so that the loop vectorises
        strange += (word & uint32(0x7F800000)) == uint32(0x7F800000)
    return strange == 0


@nb.njit(nb.boolean(_INDICES, _FLAGS, _OCTETS, int64[::1], _FLOATS, float32[::1]), cache=True)
def _spread_scales(indices, negative, octets, bounds, steps, delta):
    """delta[i] = +-steps[e] for k = indices[i], e the octet of k's tensor.

    Each tensor with entries has one octet. Return False if the number of octets is wrong.
    """
    i, at, count = 0, 0, indices.size
    for tensor in range(bounds.size - 1):
        if i == count or indices[i] >= bounds[tensor + 1]:
            continue
        if at == octets.size:
            return False
        magnitude = steps[octets[at]]
        at += 1
        while i < count and indices[i] < bounds[tensor + 1]:
            delta[i] = -magnitude if negative[i] else magnitude
            i += 1
    return at == octets.size
