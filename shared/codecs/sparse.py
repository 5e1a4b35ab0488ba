"""Coding of the parameters that an update touches: strictly increasing indices <-> bytes.

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

Runs of indices, such as a part of a model, take two LEB128 numbers per run. The first is the number of
indices since the run before (minus one from the second run on); the second is the run's length minus one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import bits
from edgeflock.shared.codecs.others import Codings
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange, IndexRepeated, IndexUnsorted, WrongDtype

Indices = NDArray[np.int64]

DENSE, RAW, GOLOMB, GRID, RUNS = 0, 1, 2, 3, 4
"""Index modes: all parameters; one little-endian u32 each; Golomb-coded gaps; with signs (grid.py); runs."""

_LARGEST_PARAMETER = 1 << 31


@dataclass(frozen=True, slots=True)
class IndexCoding:
    mode: int
    encode: Callable[[Indices, int], bytes] | None
    """(indices, size) -> octets. None: grid.py codes these indices together with signs."""
    decode: Callable[[bytes, int], Indices] | None
    """(octets, count) -> indices, strictly increasing; `decode` checks their upper bound."""


def encode(indices: Indices, size: int, mode: int = GOLOMB) -> bytes:
    """Code strictly increasing `indices` (int64 [k], 0 <= index < size) as RAW, GOLOMB or RUNS."""
    write = CODINGS[CODINGS.name_of(mode)].encode
    assert write is not None, "grid.encode codes these indices, with the signs"
    return write(indices, size)


def _encode_raw(indices: Indices, size: int) -> bytes:
    return indices.astype("<u4").tobytes()


def _encode_golomb(indices: Indices, size: int) -> bytes:
    gaps = indices - np.arange(indices.size)
    gaps[1:] -= gaps[:-1].copy()
    parameter = _best_parameter(gaps, size)
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
            _leb128(parameter),
            bits.pack(prefixes, max(width - 1, 0)),
            bits.pack(shifted[long] & 1, 1) if width else b"",
            np.packbits(unary).tobytes(),
        )
    )


def decode(octets: bytes, count: int, size: int, mode: int) -> Indices:
    """Decode int64 [count], strictly increasing, 0 <= index < size.

    Checks the announced count against the stream's length or its runs before it allocates, and then allocates
    at most about 80 bytes per index. Raises WrongDtype, IndexMalformed, IndexOutOfRange, IndexRepeated or
    IndexUnsorted.
    """
    name = CODINGS.name_of(mode)
    read = CODINGS[name].decode
    if read is None:
        raise WrongDtype(f"index mode {mode} ({name}) is valid only with values of mode 5 (scale)")
    indices = read(octets, count)
    if count and indices[-1] >= size:
        raise IndexOutOfRange(f"index {indices[-1]} lies outside the {size} parameters")
    return indices


def _decode_raw(octets: bytes, count: int) -> Indices:
    if len(octets) != 4 * count:
        raise WrongDtype(f"{count} raw indices take {4 * count} bytes as u32, not {len(octets)}")
    indices = np.frombuffer(octets, "<u4").astype(np.int64)
    if count > 1:
        smallest_step = int(np.diff(indices).min())
        if smallest_step == 0:
            raise IndexRepeated("an index occurs twice; send each parameter at most once")
        if smallest_step < 0:
            raise IndexUnsorted("indices must be strictly increasing; sort them before sending")
    return indices


def _decode_golomb(octets: bytes, count: int) -> Indices:
    """Decode the `count` indices of a Golomb stream, up to 2^62. Raises IndexMalformed."""
    if count > 8 * len(octets):
        raise IndexMalformed(f"{len(octets)} bytes cannot hold {count} indices")
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


def _encode_runs(indices: Indices, size: int) -> bytes:
    if not indices.size:
        return b""
    begins = np.flatnonzero(np.concatenate(([True], np.diff(indices) > 1)))
    first, last = indices[begins], indices[np.append(begins[1:], indices.size) - 1]
    gaps = first - np.concatenate(([0], last[:-1] + 2))
    return b"".join(map(_leb128, np.column_stack((gaps, last - first)).ravel().tolist()))


def _decode_runs(octets: bytes, count: int) -> Indices:
    """Decode the `count` indices of a stream of runs. Raises IndexMalformed."""
    numbers = _read_all_leb128(octets)
    if numbers.size % 2:
        raise IndexMalformed("a run has two numbers: its distance from the run before, and its length")
    gaps, lengths = numbers[::2], numbers[1::2] + 1
    if (found := int(lengths.sum())) != count:
        raise IndexMalformed(f"the runs hold {found} indices, not the announced {count}")
    if not count:
        return np.zeros(0, np.int64)
    gaps[1:] += 1
    indices: Indices = np.repeat(np.cumsum(gaps), lengths) + np.arange(count)
    return indices


def _best_parameter(gaps: Indices, size: int) -> int:
    """The best parameter for random gaps, ln 2 (P/k - 1/2), or a half or quarter of it if gaps cluster."""
    if gaps.size == 0:
        return 1
    uniform = min(max(1, round(0.693 * (size / gaps.size - 0.5))), _LARGEST_PARAMETER)
    candidates = {max(1, uniform >> halvings) for halvings in range(3)}
    return min(candidates, key=lambda parameter: _cost(gaps, parameter))


def _cost(gaps: Indices, parameter: int) -> int:
    """Bits of the three planes, without padding."""
    width, cutoff = _remainder(parameter)
    quotients = gaps // parameter
    unary = int(quotients.sum()) + gaps.size
    if not width:
        return unary
    long = np.count_nonzero(gaps - quotients * parameter >= cutoff)
    return unary + gaps.size * (width - 1) + int(long)


def _remainder(parameter: int) -> tuple[int, int]:
    """(b, u): the longest remainder code in bits, and how many remainders take one bit less."""
    width = (parameter - 1).bit_length()
    return width, (1 << width) - parameter


def _leb128(number: int) -> bytes:
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


def _read_all_leb128(octets: bytes) -> Indices:
    """int64: all numbers of a stream, each of at most five bytes."""
    raw = np.frombuffer(octets, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if raw.size and (not ends.size or ends[-1] != raw.size - 1):
        raise IndexMalformed("the last number of the runs is cut short")
    begins = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends
    lengths = ends - begins + 1
    if ends.size and lengths.max() > 5:
        raise IndexMalformed("a number of the runs is longer than five bytes")
    if not ends.size:
        return np.zeros(0, np.int64)
    places = np.arange(raw.size) - np.repeat(begins, lengths)
    numbers: Indices = np.add.reduceat((raw & 0x7F).astype(np.int64) << 7 * places, begins)
    return numbers


_OURS: dict[str, IndexCoding] = {
    "golomb": IndexCoding(GOLOMB, _encode_golomb, _decode_golomb),
    "raw": IndexCoding(RAW, _encode_raw, _decode_raw),
    "grid": IndexCoding(GRID, None, None),
    "runs": IndexCoding(RUNS, _encode_runs, _decode_runs),
}

CODINGS = Codings("index", _OURS, IndexCoding)
"""Index codings by name."""
