"""The inner loops of the server's hot path, compiled by numba.

Each says as a loop what its caller's docstring says as a formula. They are compiled for fixed types when
this module is first imported, and kept in numba's cache on disk. They follow IEEE 754 to the letter (no
fast-math, no fused operations), so that a replay gives the same bits.
"""

import numba as nb
import numpy as np

_OCTETS = nb.types.Array(nb.uint8, 1, "C", readonly=True)
_INDICES = nb.types.Array(nb.int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(nb.float32, 1, "C", readonly=True)

_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1)
_ONES_COUNT = _ONES.sum(axis=1, dtype=np.int64)
_ONES_AT = np.argsort(-_ONES.astype(np.int64), axis=1, kind="stable")
"""Of each octet: how many bits are set, and where, most significant first."""

TOO_SHORT, BAD_PARAMETER, TRAILING = -1, -2, -3


@nb.njit(nb.boolean(_FLOATS), cache=True)
def all_finite(values):
    """Whether there is neither NaN nor infinity among `values`."""
    strange = 0
    for word in values.view(np.uint32):  # integers, so that the loop vectorises
        strange += (word & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    return strange == 0


@nb.njit(nb.void(_OCTETS, nb.int64, _FLOATS, _FLOATS, _INDICES, nb.float32[::1]), cache=True)
def spread_fields(octets, width, table, scales, counts, values):
    """values[i] = scale of its tensor * table[field i]; fields of 1, 4 or 8 bits."""
    i, bit, present, mask = 0, 0, 0, (1 << width) - 1
    for tensor in range(counts.size):
        if counts[tensor] == 0:
            continue
        scale = scales[present]
        present += 1
        for _ in range(counts[tensor]):
            field = octets[bit >> 3] >> (8 - width - (bit & 7)) & mask
            values[i] = scale * table[field]
            bit += width
            i += 1


@nb.njit(nb.uint64(nb.uint64), inline="always")
def _popcount(word):
    """Set bits of a 64-bit word, without a branch (H. S. Warren, Hacker's Delight, 5-1)."""
    word -= (word >> nb.uint64(1)) & nb.uint64(0x5555555555555555)
    word = (word & nb.uint64(0x3333333333333333)) + ((word >> nb.uint64(2)) & nb.uint64(0x3333333333333333))
    word = (word + (word >> nb.uint64(4))) & nb.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * nb.uint64(0x0101010101010101)) >> nb.uint64(56)


@nb.njit(
    [
        nb.void(_INDICES, nb.uint8[::1], nb.uint8[::1], nb.uint8[::1], nb.uint8, nb.uint8[::1]),
        nb.void(_INDICES, nb.uint16[::1], nb.uint16[::1], nb.uint64[::1], nb.uint64, nb.uint16[::1]),
    ],
    cache=True,
)
def touches_since(where, now, before, history, below, sigma):
    """sigma[i] = T_k - (C_k + popcount(H_k, bits below)) for k = where[i]."""
    for i in range(where.size):
        k = where[i]
        sigma[i] = now[k] - before[k] - _popcount(nb.uint64(history[k] & below))


@nb.njit(
    [
        nb.void(_INDICES, _FLOATS, nb.uint8[::1], nb.uint8[::1], nb.uint8),
        nb.void(_INDICES, _FLOATS, nb.uint16[::1], nb.uint64[::1], nb.uint64),
    ],
    cache=True,
)
def touch(where, delta, now, history, bit):
    """T_k += 1 and H_k |= bit for k = where[i], if delta[i] != 0."""
    for i in range(where.size):
        if delta[i] != 0:
            k = where[i]
            now[k] += 1
            history[k] |= bit


@nb.njit(nb.void(nb.float32[::1], _INDICES, _FLOATS, nb.float32, _FLOATS), cache=True)
def descend(theta, where, delta, learning_rate, weight):
    """theta_k -= learning_rate * weight_k * delta_k for k = where[i]."""
    for i in range(where.size):
        theta[where[i]] -= learning_rate * weight[i] * delta[i]


@nb.njit(nb.int64(_OCTETS, nb.int64[::1]), cache=True)
def decode_golomb(octets, indices):
    """Fill `indices` from a stream of shared/sparse.py; its last index + 1, or TOO_SHORT, ... if it is bad.

    Stops adding up at 2^62, so that no stream can overflow an index.
    """
    size, count = octets.size, indices.size
    parameter, at = 0, 0
    while True:
        if at == size or at == 5:
            return BAD_PARAMETER
        octet = nb.int64(octets[at])
        parameter |= (octet & 0x7F) << (7 * at)
        at += 1
        if octet < 0x80:
            break
    if parameter < 1 or parameter > 1 << 31:
        return BAD_PARAMETER

    width = 0
    while (1 << width) < parameter:
        width += 1
    cutoff = (1 << width) - parameter
    indices[:] = 0
    if width > 0:
        end = at + (count * (width - 1) + 7) // 8
        if end > size:
            return TOO_SHORT
        longs, held, have = 0, 0, 0
        for i in range(count):
            while have < width - 1:
                held = held << 8 | nb.int64(octets[at])
                at += 1
                have += 8
            have -= width - 1
            prefix = held >> have
            held &= (1 << have) - 1
            indices[i] = prefix
            longs += prefix >= cutoff
        at, bit = end, 8 * end
        end += (longs + 7) // 8
        if end > size:
            return TOO_SHORT
        if longs:
            # No branch on what the data decide: it would be mispredicted every other time.
            for i in range(count):
                prefix = indices[i]
                long = nb.int64(prefix >= cutoff)
                extra = nb.int64(octets[min(bit >> 3, size - 1)] >> (7 - (bit & 7)) & 1)
                indices[i] = prefix + long * (prefix + extra - cutoff)
                bit += long
        at = end

    # ones[i] = q_0 + ... + q_i + i is where the i-th one stands in the unary plane.
    index, found, last = -1, 0, 0
    for octet_at in range(at, size):
        octet = octets[octet_at]
        first = 8 * (octet_at - at)
        for j in range(_ONES_COUNT[octet]):
            if found == count:
                return TRAILING
            one = first + _ONES_AT[octet, j]
            quotient = one - last
            last = one + 1
            index = min(index + quotient * parameter + indices[found] + 1, 1 << 62)
            indices[found] = index
            found += 1
    if found < count:
        return TOO_SHORT
    if (last + 7) // 8 != size - at:
        return TRAILING
    return index + 1
