"""The loops of golomb.py, compiled by numba: the same octets, several times as fast.

Whatever the decoder finds invalid is left to golomb.py, which defines what is valid. The loops avoid
branches that depend on the data, because about half of these would be mispredicted.
"""

import sys

import numba as nb
import numpy as np
from numba import boolean, int64, uint8, uint64

from edgeflock.shared.codecs import golomb

_OCTETS = nb.types.Array(uint8, 1, "C", readonly=True)
_INDICES = nb.types.Array(int64, 1, "C", readonly=True)

_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1)
_ONES_COUNT = _ONES.sum(axis=1, dtype=np.int64)
_ONES_AT = np.argsort(-_ONES.astype(np.int64), axis=1, kind="stable")
"""For each octet: the number of set bits and their positions, most significant first."""

_SMALL = 256
"""Gaps below this are counted by value, and divided once for each value."""


@nb.njit(int64(int64), inline="always")
def _cutoff(parameter):
    """The number of remainders that take one bit less."""
    power = int64(1)
    while power < parameter:
        power <<= 1
    return power - parameter


@nb.njit(boolean(_INDICES, _INDICES, int64[::1], int64[::1]), cache=True)
def measure_golomb(indices, parameters, quotients, longs):
    """For each parameter: the sum of the quotients, and how many remainders take the extra bit.

    Return False if `indices` do not increase.
    """
    small, previous = np.zeros(_SMALL, np.int64), int64(-1)
    quotients[:] = 0
    longs[:] = 0
    for index in indices:
        gap = index - previous - 1
        previous = index
        if gap < 0:
            return False
        if gap < _SMALL:
            small[gap] += 1
        else:
            for i in range(parameters.size):
                quotient = gap // parameters[i]
                quotients[i] += quotient
                longs[i] += gap - quotient * parameters[i] >= _cutoff(parameters[i])
    for i in range(parameters.size):
        cutoff = _cutoff(parameters[i])
        for gap in range(_SMALL):
            quotient = gap // parameters[i]
            quotients[i] += small[gap] * quotient
            longs[i] += small[gap] * (gap - quotient * parameters[i] >= cutoff)
    return True


@nb.njit(nb.types.void(_INDICES, int64, uint8[::1], int64, int64), cache=True)
def encode_golomb(indices, parameter, octets, extra, unary):
    """Write the planes into `octets` (zeros): prefixes, extra bits from `extra` on, unary from `unary` on.

    `indices` must be strictly increasing.
    """
    cutoff, width = _cutoff(parameter), int64(0)
    while (int64(2) << width) < parameter:
        width += 1
    quotients = np.arange(_SMALL) // parameter
    has_remainder = parameter > 1
    previous, at, held, have = int64(-1), int64(0), uint64(0), int64(0)
    extra_bit, unary_bit = 8 * extra, 8 * unary
    for index in indices:
        gap = index - previous - 1
        previous = index
        quotient = quotients[gap] if gap < _SMALL else gap // parameter
        remainder = gap - quotient * parameter
        unary_bit += quotient
        octets[unary_bit >> 3] |= uint8(128 >> (unary_bit & 7))
        unary_bit += 1
        if has_remainder:
            long = int64(remainder >= cutoff)
            shifted = remainder + cutoff
            octets[extra_bit >> 3] |= uint8((long & shifted) << (7 - (extra_bit & 7)))
            extra_bit += long
            held = held << uint64(width) | uint64(long * (shifted >> 1) + (1 - long) * remainder)
            have += width
            while have >= 8:
                have -= 8
                octets[at] = uint8(held >> uint64(have))
                at += 1
    if have:
        octets[at] = uint8(held << uint64(8 - have))


@nb.njit(nb.boolean(_OCTETS, int64[::1]), cache=True)
def decode_golomb(octets, indices):
    """Fill `indices` from a Golomb stream . False if it does not hold exactly as many."""
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


golomb.kernels = sys.modules[__name__]
