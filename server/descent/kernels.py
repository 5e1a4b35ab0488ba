"""The inner loops of the server's hot path, compiled by numba.

Each loop implements the formula in its caller's docstring. They are compiled for fixed types when this module
is first imported, and kept in numba's cache on disk. They follow IEEE 754 strictly (no fast-math, no fused
operations), so that a replay gives the same bits. They avoid branches that depend on the data, because about
half of these would be mispredicted.
"""

import numba as nb
import numpy as np
from numba import float32, int64, uint8, uint16, uint32, uint64

_OCTETS = nb.types.Array(uint8, 1, "C", readonly=True)
_INDICES = nb.types.Array(int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(float32, 1, "C", readonly=True)
_FLAGS = nb.types.Array(nb.boolean, 1, "C", readonly=True)

_BLOCK = 256
"""Entries that are processed together."""

_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1)
_ONES_COUNT = _ONES.sum(axis=1, dtype=np.int64)
_ONES_AT = np.argsort(-_ONES.astype(np.int64), axis=1, kind="stable")
"""For each octet: the number of set bits and their positions, most significant first."""


@nb.njit(uint64(uint64), inline="always")
def _popcount(word):
    """Set bits of a 64-bit word (H. S. Warren, Hacker's Delight, 5-1)."""
    word -= (word >> uint64(1)) & uint64(0x5555555555555555)
    word = (word & uint64(0x3333333333333333)) + ((word >> uint64(2)) & uint64(0x3333333333333333))
    word = (word + (word >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
    return (word * uint64(0x0101010101010101)) >> uint64(56)


@nb.njit(
    [
        nb.void(_INDICES, uint8[::1], uint8[::1], uint8[::1], uint8, uint8[::1]),
        nb.void(_INDICES, uint16[::1], uint16[::1], uint64[::1], uint64, uint16[::1]),
    ],
    cache=True,
)
def touches_since(indices, now, before, history, below, sigma):
    """sigma[i] = T_k - (C_k + popcount(H_k, bits below)) for k = indices[i]."""
    for i in range(indices.size):
        k = indices[i]
        sigma[i] = now[k] - before[k] - _popcount(uint64(history[k] & below))


@nb.njit(
    [
        nb.void(_INDICES, _FLOATS, uint8[::1], uint8[::1], uint8),
        nb.void(_INDICES, _FLOATS, uint16[::1], uint64[::1], uint64),
    ],
    cache=True,
)
def touch(indices, delta, now, history, bit):
    """T_k += 1 and H_k |= bit for k = indices[i], if delta[i] != 0."""
    for i in range(indices.size):
        k = indices[i]
        changed = delta[i] != 0
        now[k] += changed
        history[k] |= bit * changed


@nb.njit(nb.void(float32[::1], _INDICES, _FLOATS, float32), cache=True)
def descend(theta, indices, delta, rate):
    """theta_k -= rate * delta_k for k = indices[i]."""
    for i in range(indices.size):
        theta[indices[i]] -= rate * delta[i]


@nb.njit(nb.void(float32[::1], _FLOATS, float32), cache=True)
def approach(average, theta, weight):
    """average_k += weight (theta_k - average_k) for all k."""
    for k in range(average.size):
        average[k] += weight * (theta[k] - average[k])


@nb.njit(uint32(_FLOATS), cache=True)
def largest_bits(delta):
    """The bits of the largest |delta_k|. As integers they have the same order; infinity and NaN are last."""
    largest = uint32(0)
    for word in delta.view(np.uint32):  # integers, so that the loop vectorises
        largest = max(largest, word & uint32(0x7FFFFFFF))
    return largest


@nb.njit(
    [
        nb.void(
            float32[::1], _INDICES, _FLOATS, float32,
            uint8[::1], uint8[::1], uint8[::1], uint8, uint8[::1], uint8, int64,
        ),
        nb.void(
            float32[::1], _INDICES, _FLOATS, float32,
            uint16[::1], uint16[::1], uint64[::1], uint64, uint64[::1], uint64, int64,
        ),
    ],
    cache=True,
)  # fmt: skip
def adacomp(theta, indices, delta, rate, now, before, then, below, history, bit, mask):
    """theta_k -= rate / max(1, sigma_k) * delta_k for k = indices[i], and touch; sigma_k counts up to `mask`.

    It works block by block and updates theta in a separate pass. A single pass over all five arrays takes up
    to 1.4 times as long if they are not in the cache. Unsigned indices avoid a check of each sign.
    """
    moves = np.empty(_BLOCK, float32)
    for start in range(0, indices.size, _BLOCK):
        block, slopes = indices[start : start + _BLOCK], delta[start : start + _BLOCK]
        for i in range(block.size):
            k = uint64(block[i])
            sigma = (int64(now[k]) - int64(before[k]) - int64(_popcount(uint64(then[k] & below)))) & mask
            moves[i] = float32(max(1, sigma))
            changed = slopes[i] != 0
            now[k] += changed
            history[k] |= bit * changed
        for i in range(block.size):
            moves[i] = rate / moves[i] * slopes[i]
        for i in range(block.size):
            theta[uint64(block[i])] -= moves[i]


@nb.njit(nb.boolean(_OCTETS, int64[::1]), cache=True)
def decode_golomb(octets, indices):
    """Fill `indices` from a Golomb stream (codecs/sparse.py). False if it does not hold exactly as many."""
    size, count = uint64(octets.size), uint64(indices.size)
    parameter, at = uint64(0), uint64(0)
    while True:
        if at == size or at == uint64(5):
            return False
        octet = uint64(octets[at])
        parameter |= (octet & uint64(0x7F)) << (uint64(7) * at)
        at += uint64(1)
        if octet < uint64(0x80):
            break
    if parameter < uint64(1) or parameter > uint64(1 << 31):
        return False

    width = uint64(0)  # of a prefix: one bit less than the longest remainder
    while (uint64(2) << width) < parameter:
        width += uint64(1)
    cutoff = (uint64(2) << width) - parameter
    if parameter == uint64(1):
        indices[:] = 0
    else:
        end = at + (count * width + uint64(7)) // uint64(8)
        if end > size:
            return False
        longs, held, have = uint64(0), uint64(0), uint64(0)
        for i in range(count):
            while have < width:
                held = held << uint64(8) | uint64(octets[at])
                at += uint64(1)
                have += uint64(8)
            have -= width
            prefix = held >> have
            held &= (uint64(1) << have) - uint64(1)
            indices[i] = int64(prefix)
            longs += uint64(prefix >= cutoff)
        bit = uint64(8) * end
        at = end + (longs + uint64(7)) // uint64(8)
        if at > size:
            return False
        if longs:
            for i in range(count):
                prefix = uint64(indices[i])
                long = uint64(prefix >= cutoff)
                octet = uint64(octets[min(bit >> uint64(3), size - uint64(1))])
                extra = octet >> (uint64(7) - (bit & uint64(7))) & uint64(1)
                indices[i] = int64(prefix + long * (prefix + extra - cutoff))
                bit += long

    # The i-th 1 bit of the unary plane is at position q_0 + ... + q_i + i.
    index, found, following = int64(-1), uint64(0), int64(0)
    for place in range(at, size):
        octet = octets[place]
        first = int64(8 * (place - at))
        if found + uint64(_ONES_COUNT[octet]) > count:
            return False
        for j in range(_ONES_COUNT[octet]):
            one = first + _ONES_AT[octet, j]
            index += (one - following) * int64(parameter) + indices[found] + 1
            following = one + 1
            if index < 0:  # a stream may add up beyond 2^63
                return False
            indices[found] = index
            found += uint64(1)
    return found == count and uint64((following + 7) // 8) == size - at


@nb.njit(nb.boolean(_OCTETS, _OCTETS, int64, _INDICES, int64[::1], float32[::1]), cache=True)
def decode_update(index_octets, value_octets, mode, bounds, indices, delta):
    """Fill `indices` and `delta` from a Golomb stream and int8 (mode 2), codebook4 (3) or sign (4) values.

    Return False if they are invalid: an index out of range, a wrong length, NaN or infinity.
    """
    if not decode_golomb(index_octets, indices):
        return False
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
def spread_scales(indices, negative, octets, bounds, steps, delta):
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
