"""Golomb's code of strictly increasing indices.

A sorted index set is coded as its gaps g_i = k_i - k_{i-1} - 1 (k_{-1} = -1) with Golomb's code (S. W.
Golomb, "Run-length encodings", 1966): g = q M + r, q in unary, r in truncated binary. For k of P random
indices it stays within 1% of the entropy bound log2 C(P, k) / k.

The three parts of the code words lie in three planes, so that a few array operations decode each plane:

    M        the Golomb parameter, LEB128
    prefix   k fields of b - 1 bits, where b = ceil(log2 M) and u = 2^b - M:
             r if r < u, else (r + u) >> 1
    extra    one bit, (r + u) & 1, for each prefix >= u, in order
    unary    q zeros and a one for each index, in order

Each plane starts on a byte and is zero-padded to a byte. M = 1 has neither prefix nor extra.

The numpy code defines the result. On a server compiled_golomb.py gives the same one several times as fast.
"""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import bits
from edgeflock.shared.errors import IndexMalformed

Indices = NDArray[np.int64]

_LARGEST_PARAMETER = 1 << 31

kernels: ModuleType | None = None
"""compiled_golomb, once a server has loaded it. Devices do without: it takes seconds and 100 MB."""


def encode(indices: Indices, size: int) -> bytes:
    """Code strictly increasing `indices` (int64 [k], 0 <= index < size)."""
    return encode_numpy(indices, size) if kernels is None else encode_compiled(kernels, indices, size)


def decode(octets: bytes, count: int) -> Indices:
    """Decode the `count` indices of a stream, up to 2^62. Raises IndexMalformed."""
    if count > 8 * len(octets):
        raise IndexMalformed(f"{len(octets)} bytes cannot hold {count} indices")
    if kernels is not None:
        indices = np.empty(count, np.int64)
        if kernels.decode_golomb(np.frombuffer(octets, np.uint8), indices):
            return indices
        del indices
    return decode_numpy(octets, count)  # it also says what is wrong


def encode_compiled(kernels: ModuleType, indices: Indices, size: int) -> bytes:
    """Return the octets of `encode_numpy`. Raises ValueError if the indices do not increase."""
    indices = np.ascontiguousarray(indices, np.int64)
    candidates = _candidates(indices.size, size)
    quotients, longs = np.empty((2, len(candidates)), np.int64)
    if not kernels.measure_golomb(indices, np.array(candidates), quotients, longs):
        raise ValueError("indices must be strictly increasing")
    planes = {
        candidate: _plane_bits(indices.size, int(quotient), int(long), candidate)
        for candidate, quotient, long in zip(candidates, quotients, longs, strict=True)
    }
    parameter = min(candidates, key=lambda candidate: sum(planes[candidate]))
    prefix, extra, unary = (bits.packed_size(count, 1) for count in planes[parameter])
    octets = np.zeros(prefix + extra + unary, np.uint8)
    kernels.encode_golomb(indices, parameter, octets, prefix, prefix + extra)
    return leb128(parameter) + octets.tobytes()


def encode_numpy(indices: Indices, size: int) -> bytes:
    gaps = indices - np.arange(indices.size)
    gaps[1:] -= gaps[:-1].copy()
    parameter = min(_candidates(gaps.size, size), key=lambda candidate: _cost(gaps, candidate))
    width, cutoff = _remainder(parameter)
    quotients = gaps // parameter  # divmod takes several times as long
    remainders = gaps - quotients * parameter
    long = remainders >= cutoff
    shifted = remainders + cutoff
    prefixes = np.where(long, shifted >> 1, remainders)
    unary = np.zeros(int(quotients.sum()) + gaps.size, np.uint8)
    unary[np.cumsum(quotients + 1) - 1] = 1
    return b"".join(
        (
            leb128(parameter),
            bits.pack(prefixes, max(width - 1, 0)),
            bits.pack(shifted[long] & 1, 1) if width else b"",
            np.packbits(unary).tobytes(),
        )
    )


def decode_numpy(octets: bytes, count: int) -> Indices:
    parameter, offset = _read_leb128(octets)
    width, cutoff = _remainder(parameter)
    if width:
        end = offset + bits.packed_size(count, width - 1)
        if end > len(octets):
            raise IndexMalformed("the prefix plane is cut short")
        remainders = bits.unpack(octets[offset:end], count, width - 1)
        long = np.flatnonzero(remainders >= cutoff)
        offset, end = end, end + bits.packed_size(long.size, 1)
        if end > len(octets):
            raise IndexMalformed("the extra plane is cut short")
        extra = np.unpackbits(np.frombuffer(octets[offset:end], np.uint8), count=long.size)
        remainders[long] += remainders[long] + extra - cutoff
        offset = end
    else:
        remainders = np.zeros(count, np.int64)
    unary = np.frombuffer(octets[offset:], np.uint8)
    found = int(np.bitwise_count(unary).sum(dtype=np.int64))  # before they take eight bytes each
    if found != count or (len(unary) and not unary[-1]):
        raise IndexMalformed(f"the unary plane holds {found} indices, not the announced {count}")
    ones = np.flatnonzero(np.unpackbits(unary))
    # ones[i] = q_0 + ... + q_i + i, so the running index needs one multiplication and one sum.
    steps = np.arange(count)
    indices: Indices = (ones - steps) * parameter + np.cumsum(remainders) + steps
    return indices


def _candidates(count: int, size: int) -> list[int]:
    """The best parameter for random gaps, ln 2 (P/k - 1/2), and a half and a quarter of it for clusters."""
    if count == 0:
        return [1]
    uniform = min(max(1, round(0.693 * (size / count - 0.5))), _LARGEST_PARAMETER)
    return list({max(1, uniform >> halvings) for halvings in range(3)})


def _cost(gaps: Indices, parameter: int) -> int:
    """Bits of the three planes, without padding."""
    _, cutoff = _remainder(parameter)
    quotients = gaps // parameter
    long = int(np.count_nonzero(gaps - quotients * parameter >= cutoff))
    return sum(_plane_bits(gaps.size, int(quotients.sum()), long, parameter))


def _plane_bits(count: int, quotients: int, long: int, parameter: int) -> tuple[int, int, int]:
    """The bits of each plane. `quotients` is a sum, `long` the number of remainders with an extra bit."""
    width, _ = _remainder(parameter)
    return count * max(width - 1, 0), long if width else 0, quotients + count


def _remainder(parameter: int) -> tuple[int, int]:
    """(b, u): the longest remainder code in bits, and how many remainders take one bit less."""
    width = (parameter - 1).bit_length()
    return width, (1 << width) - parameter


def leb128(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def _read_leb128(octets: bytes) -> tuple[int, int]:
    number = 0
    for index, octet in enumerate(octets[:5]):
        number |= (octet & 0x7F) << 7 * index
        if octet < 0x80:
            if not 1 <= number <= _LARGEST_PARAMETER:
                break
            return number, index + 1
    raise IndexMalformed("the stream does not begin with a Golomb parameter of 1 to 2^31")
