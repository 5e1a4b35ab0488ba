"""Coding of the values of an update: float32 [k] <-> bytes, at 32, 16, 8, 4, 1 or no bits a value.

Values are in the order of their indices, so those of one tensor are contiguous. `counts` (int64 [T],
Layout.counts) has the number of values of each tensor. Codings with scales have one for each tensor with
values, because gradients of layers differ by orders of magnitude. Scales are bfloat16 (the upper half of a
float32, rounded to nearest even). Numbers are little-endian; bit fields go most significant bit first.

    f32        k float32
    f16        k float16, clipped to +-65504
    int8       scale s per tensor, then k int8 q:                       value = s q
    codebook4  scale s per tensor, 8 levels a (bfloat16), then k 4-bit
               fields (sign bit, 3-bit level number j):                 value = +-s a_j
    sign       scale s per tensor, the mean of |value| over its sent
               values, then k sign bits, 1 for negative:                value = +-s
    scale      an octet e per tensor, the mean of |value| in steps of
               an eighth of an octave, 0 for nothing:                   |value| = 2^((e - 192) / 8)

`scale` codes magnitudes only, from 6e-8 to 235: grid.py codes the signs with the indices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import bits
from edgeflock.shared.codecs.others import Codings
from edgeflock.shared.errors import WrongDtype

Values = NDArray[np.float32]
Counts = NDArray[np.int64]

_LEVELS = 8
LARGEST_STATISTIC = _LARGEST_F16 = 65504.0
_LARGEST_SCALE = 3e38
_NO_COUNTS = np.zeros(0, np.int64)
_SIGNS = np.array([1, -1], np.float32)
STEPS = np.array([0.0, *(2 ** ((e - 192) / 8) for e in range(1, 256))], np.float32)
"""The magnitudes of the octets of `scale`."""


@dataclass(frozen=True, slots=True)
class ValueCoding:
    mode: int
    encode: Callable[[Values, Counts], bytes]
    decode: Callable[[bytes, Counts], Values]
    size: Callable[[int, int], int]
    """(k, t) -> the size in bytes of k values in t non-empty tensors."""
    means_only: bool = False
    """Whether it keeps only each tensor's mean magnitude."""


def encode(values: Values, counts: Counts, coding: str) -> bytes:
    """Write `values` (float32 [k], finite), of which tensor t has counts[t]."""
    return CODINGS[coding].encode(values, counts)


def decode(octets: bytes, counts: Counts, mode: int) -> Values:
    """Decode float32 [counts.sum()]; for f32 it is a read-only view of `octets`.

    The result may hold NaN or infinity if the bytes do: admission checks for them. Raises WrongDtype if the
    mode is unknown or the number of bytes does not match it.
    """
    name = CODINGS.name_of(mode)
    expected = size_of(mode, counts)
    if len(octets) != expected:
        raise WrongDtype(f"{counts.sum()} values as {name} take {expected} bytes, not {len(octets)}")
    return CODINGS[name].decode(octets, counts)


def size_of(mode: int, counts: Counts) -> int:
    """The size of values of which tensor t has counts[t]. Raises WrongDtype if the mode is unknown."""
    return CODINGS[CODINGS.name_of(mode)].size(int(counts.sum()), int(np.count_nonzero(counts)))


def encode_statistics(statistics: Values) -> bytes:
    """Encode the running statistics that follow an update's values (float32 [B]) as float16: 2 B bytes.

    Half precision is finer than the noise of a batch. Values beyond LARGEST_STATISTIC are clipped.
    """
    return _encode_f16(statistics, _NO_COUNTS)


def decode_statistics(octets: bytes) -> Values:
    """Decode float32 [B]; it may hold NaN or infinity."""
    return _decode_f16(octets, _NO_COUNTS)


def _encode_f32(values: Values, counts: Counts) -> bytes:
    return values.astype("<f4", copy=False).tobytes()


def _encode_f16(values: Values, counts: Counts) -> bytes:
    return np.clip(values, -_LARGEST_F16, _LARGEST_F16).astype("<f2").tobytes()


def _encode_int8(values: Values, counts: Counts) -> bytes:
    scales, divisors = _scales(np.maximum.reduceat, np.abs(values), counts, 1 / np.float32(127))
    quantised: Values = np.divide(values, divisors)  # avoid more copies: it may be a whole model
    np.rint(quantised, out=quantised)
    np.clip(quantised, -127, 127, out=quantised)
    return scales + quantised.astype(np.int8).tobytes()


def _encode_codebook4(values: Values, counts: Counts) -> bytes:
    magnitudes = np.abs(values)
    scales, divisors = _mean_scales(magnitudes, counts)
    relative: Values = np.divide(magnitudes, divisors)
    levels = _fit_levels(relative)
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, relative)
    fields = nearest | (values < 0) * _LEVELS
    return scales + _to_bfloat16(levels).tobytes() + bits.pack(fields, 4)


def _encode_sign(values: Values, counts: Counts) -> bytes:
    scales, _ = _mean_scales(np.abs(values), counts)
    return scales + np.packbits(values < 0).tobytes()


def _encode_scale(values: Values, counts: Counts) -> bytes:
    present = counts[counts > 0]
    if present.size == 0:
        return b""
    sums = np.add.reduceat(np.abs(values), np.cumsum(present) - present, dtype=np.float64)
    steps = np.rint(8 * np.log2(np.maximum(sums / present, 2.0**-30))) + 192
    octets: NDArray[np.uint8] = np.clip(steps, 0, 255).astype(np.uint8)
    return octets.tobytes()


def _decode_f32(octets: bytes, counts: Counts) -> Values:
    return np.frombuffer(octets, "<f4").astype(np.float32, copy=False)


def _decode_f16(octets: bytes, counts: Counts) -> Values:
    with np.errstate(invalid="ignore"):  # for a signalling NaN
        return np.frombuffer(octets, "<f2").astype(np.float32)


def _decode_int8(octets: bytes, counts: Counts) -> Values:
    end = 2 * int(np.count_nonzero(counts))
    scale = np.repeat(_from_bfloat16(octets[:end]), counts[counts > 0])
    with np.errstate(over="ignore", invalid="ignore"):  # as in _spread_fields
        scale *= np.frombuffer(octets, np.int8, offset=end)
    return scale


def _decode_codebook4(octets: bytes, counts: Counts) -> Values:
    end = 2 * (int(np.count_nonzero(counts)) + _LEVELS)
    numbers = _from_bfloat16(octets[:end])
    levels = numbers[-_LEVELS:]
    return _spread_fields(octets[end:], 4, np.concatenate((levels, -levels)), numbers[:-_LEVELS], counts)


def _decode_sign(octets: bytes, counts: Counts) -> Values:
    end = 2 * int(np.count_nonzero(counts))
    return _spread_fields(octets[end:], 1, _SIGNS, _from_bfloat16(octets[:end]), counts)


def _decode_scale(octets: bytes, counts: Counts) -> Values:
    return np.repeat(STEPS[np.frombuffer(octets, np.uint8)], counts[counts > 0])


def _spread_fields(octets: bytes, width: int, table: Values, scales: Values, counts: Counts) -> Values:
    """Return scale * table[field] for fields of `width` bits; scales has one entry per non-empty tensor."""
    scale = np.repeat(scales, counts[counts > 0])
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is not finite, so admission refuses it
        scale *= table[bits.unpack(octets, scale.size, width)]
    return scale


def _fit_levels(relative: Values) -> Values:
    """Eight ascending levels for `relative`: a few steps of Lloyd's algorithm (IEEE Trans. IT 28, 1982)."""
    if relative.size == 0:
        return np.ones(_LEVELS, np.float32)
    sample = relative[:: 1 + relative.size // 8192]
    low, high = float(sample.min()), float(relative.max())
    # Most top-k magnitudes are near the threshold: start with a geometric sequence.
    levels = np.geomspace(max(low, high * 1e-3, 1e-30), max(high, 1e-30), _LEVELS)
    for _ in range(6):
        nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, sample)
        members = np.bincount(nearest, minlength=_LEVELS)
        sums = np.bincount(nearest, weights=sample, minlength=_LEVELS)
        np.divide(sums, members, out=levels, where=members > 0)
    return _from_bfloat16(_to_bfloat16(levels.astype(np.float32)).tobytes())


def _mean_scales(magnitudes: Values, counts: Counts) -> tuple[bytes, Values]:
    present = counts[counts > 0]
    # Sums of finite magnitudes may overflow float32.
    sums = partial(np.add.reduceat, dtype=np.float64)
    return _scales(sums, magnitudes, counts, (1 / present).astype(np.float32))


def _scales(
    reduce: Callable[[Values, Counts], NDArray[np.floating]],
    magnitudes: Values,
    counts: Counts,
    factor: Values | np.float32,
) -> tuple[bytes, Values]:
    """(bfloat16 scale per non-empty tensor, divisor of each value as float32: infinity for 0)."""
    present = counts[counts > 0]
    if present.size == 0:
        return b"", np.zeros(0, np.float32)
    starts = np.cumsum(present) - present
    # The largest float32 numbers would round to infinity.
    exact = np.minimum(reduce(magnitudes, starts).astype(np.float64) * factor, _LARGEST_SCALE)
    scales = _to_bfloat16(exact.astype(np.float32)).tobytes()
    divisors = _from_bfloat16(scales)
    divisors[divisors == 0] = np.inf
    return scales, np.repeat(divisors, present)


def _to_bfloat16(numbers: Values) -> NDArray[np.uint16]:
    words: NDArray[np.uint32] = numbers.astype("<f4").view("<u4")
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.dtype("<u2"))


def _from_bfloat16(octets: bytes) -> Values:
    words = np.frombuffer(octets, "<u2").astype("<u4")
    words <<= 16
    return words.view("<f4")


_OURS: dict[str, ValueCoding] = {
    "f32": ValueCoding(0, _encode_f32, _decode_f32, lambda k, t: 4 * k),
    "f16": ValueCoding(1, _encode_f16, _decode_f16, lambda k, t: 2 * k),
    "int8": ValueCoding(2, _encode_int8, _decode_int8, lambda k, t: 2 * t + k),
    "codebook4": ValueCoding(
        3, _encode_codebook4, _decode_codebook4, lambda k, t: 2 * (t + _LEVELS) + bits.packed_size(k, 4)
    ),
    "sign": ValueCoding(
        4, _encode_sign, _decode_sign, lambda k, t: 2 * t + bits.packed_size(k, 1), means_only=True
    ),
    "scale": ValueCoding(5, _encode_scale, _decode_scale, lambda k, t: t, means_only=True),
}

CODINGS = Codings("value", _OURS, ValueCoding)
"""Value codings by name."""
