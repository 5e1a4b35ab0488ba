"""Laws that every codec obeys, as functions that raise AssertionError where one does not.

They hold for every index coding and value coding in the tables of shared/codecs, and for the decoders that
the server compiles for some of them. A grid, which needs the layout and has signs, has its own in
tests/shared/codecs/test_grid.py.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import entries, golomb, sparse, values
from edgeflock.shared.codecs.compiled_entries import SCALE_MODE, VALUE_MODES, decode_usual
from edgeflock.shared.codecs.compiled_golomb import decode_golomb
from edgeflock.shared.errors import (
    IndexMalformed,
    IndexOutOfRange,
    IndexRepeated,
    IndexUnsorted,
    Refused,
    WrongDtype,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update

Indices = NDArray[np.int64]
Values = NDArray[np.float32]
Counts = NDArray[np.int64]

INDEX_REFUSALS = {WrongDtype, IndexMalformed, IndexOutOfRange, IndexRepeated, IndexUnsorted}
SHORTEST_MANTISSA = 2.0**-8
"""Relative error of rounding to bfloat16, which has 8 significant bits."""


@dataclass(frozen=True, slots=True)
class IndexCoding:
    """An index mode and a decoder for it: (octets, count, size) -> indices."""

    mode: int
    decode: Callable[[bytes, int, int], Indices]

    def encode(self, indices: Indices, size: int) -> bytes:
        return sparse.encode(indices, size, self.mode)


@dataclass(frozen=True, slots=True)
class ValueCoding:
    """A value coding and a decoder for it: (octets, counts) -> values."""

    name: str
    decode: Callable[[bytes, Counts], Values]

    @property
    def coding(self) -> values.ValueCoding:
        return values.CODINGS[self.name]

    def encode(self, numbers: Values, counts: Counts) -> bytes:
        return values.encode(numbers, counts, self.name)


def _index_decoder(mode: int) -> Callable[[bytes, int, int], Indices]:
    return lambda octets, count, size: sparse.decode(octets, count, size, mode)


def _golomb_by(
    decoder: Callable[[bytes, int], Indices],
) -> Callable[[bytes, int, int], Indices]:
    """One of the two decoders, with the checks around it: `golomb.decode` tries the compiled one first."""

    def decoded(octets: bytes, count: int, size: int) -> Indices:
        if count > 8 * len(octets):
            raise IndexMalformed
        indices = decoder(octets, count)
        if count and indices[-1] >= size:
            raise IndexOutOfRange
        return indices

    return decoded


def _compiled_golomb(octets: bytes, count: int) -> Indices:
    indices = np.empty(count, np.int64)
    if not decode_golomb(np.frombuffer(octets, np.uint8), indices):
        raise IndexMalformed
    return indices


def _value_decoder(mode: int) -> Callable[[bytes, Counts], Values]:
    return lambda octets, counts: values.decode(octets, counts, mode)


def _compiled_values(mode: int) -> Callable[[bytes, Counts], Values]:
    """decode_usual, for an update of every parameter of a layout that has as many as `counts`."""

    def decoded(octets: bytes, counts: Counts) -> Values:
        if not octets:  # an update without values is left to the other decoder
            return values.decode(octets, counts, mode)
        layout = Layout.from_shapes(
            [*((str(t), (int(count),)) for t, count in enumerate(counts)), ("untouched", (1,))]
        )
        count = int(counts.sum())
        indices = sparse.encode(np.arange(count), layout.size)
        decoded = decode_usual(sparse.GOLOMB, mode, count, indices, octets, layout)
        if decoded is None:
            raise WrongDtype
        return decoded[1]

    return decoded


INDEX_CODINGS: dict[str, IndexCoding] = {
    name: IndexCoding(coding.mode, _index_decoder(coding.mode))
    for name, coding in sparse.CODINGS.items()
    if coding.decode is not None
} | {
    "golomb-numpy": IndexCoding(sparse.GOLOMB, _golomb_by(golomb.decode_numpy)),
    "golomb-compiled": IndexCoding(sparse.GOLOMB, _golomb_by(_compiled_golomb)),
}

VALUE_CODINGS: dict[str, ValueCoding] = {
    name: ValueCoding(name, _value_decoder(coding.mode)) for name, coding in values.CODINGS.items()
} | {
    f"{name}-compiled": ValueCoding(name, _compiled_values(coding.mode))
    for name, coding in values.CODINGS.items()
    if coding.mode in VALUE_MODES
}


def update_of(
    indices: bytes, count: int, octets: bytes, value_mode: int, index_mode: int = sparse.GOLOMB
) -> Update:
    """An update of whatever bytes."""
    return Update(1, 0, index_mode, value_mode, count, indices, octets, 0.0, 1, False)


# Index codings


def indices_come_back(coding: IndexCoding, indices: Indices, size: int) -> None:
    """decode(encode(x)) = x, as int64."""
    decoded = coding.decode(coding.encode(indices, size), indices.size, size)
    assert decoded.dtype == np.int64
    assert decoded.tolist() == indices.tolist()


def no_part_of_a_stream_passes(coding: IndexCoding, indices: Indices, size: int) -> None:
    """Every stream that is cut short, goes on, or is announced with another count is refused."""
    stream = coding.encode(indices, size)
    altered = [stream[:cut] for cut in range(len(stream))]
    altered += [stream + addition for addition in (b"\x00", b"\x80", b"\xff\xff")]
    for octets in altered:
        decoded = outcome(coding, octets, indices.size, size)
        assert isinstance(decoded, type), f"{octets!r} passed for {stream!r} as {decoded}"
        assert decoded in INDEX_REFUSALS
    for count in (indices.size - 1, indices.size + 1, 1 << 40):
        if count >= 0:
            assert_refused_or_valid(coding, stream, count, size)


def last_index_is_held_against_the_size(coding: IndexCoding, indices: Indices, size: int) -> None:
    """A stream for more parameters than there are is refused."""
    if indices.size:
        stream = coding.encode(indices, size)
        assert outcome(coding, stream, indices.size, int(indices[-1])) is IndexOutOfRange


def assert_refused_or_valid(coding: IndexCoding, octets: bytes, count: int, size: int) -> None:
    """Whatever the bytes: a refusal for indices, or `count` indices in order and in range."""
    decoded = outcome(coding, octets, count, size)
    if isinstance(decoded, type):
        assert decoded in INDEX_REFUSALS
    else:
        assert len(decoded) == count
        assert all(0 <= index < size for index in decoded)
        assert all(before < after for before, after in zip(decoded, decoded[1:], strict=False))


def outcome(coding: IndexCoding, octets: bytes, count: int, size: int) -> list[int] | type[Refused]:
    """What decoding gives: the indices, or the kind of refusal."""
    try:
        return coding.decode(octets, count, size).tolist()  # type: ignore[no-any-return]
    except Refused as refusal:
        return type(refusal)


# Value codings


def size_is_as_announced(coding: ValueCoding, numbers: Values, counts: Counts) -> None:
    tensors = sum(1 for count in counts if count)
    assert len(coding.encode(numbers, counts)) == coding.coding.size(numbers.size, tensors)


def values_come_back(coding: ValueCoding, numbers: Values, counts: Counts) -> None:
    """decode(encode(x)) = x, exactly or as nearly as the coding promises."""
    octets = coding.encode(numbers, counts)
    decoded = coding.decode(octets, counts)
    assert decoded.dtype == np.float32
    assert decoded.shape == numbers.shape
    _PROMISES[coding.name](numbers, decoded, counts, octets)


def coding_again_changes_nothing(coding: ValueCoding, numbers: Values, counts: Counts) -> None:
    """Values that a coding can write exactly, it writes exactly: encode(decode(s)) = s.

    codebook4 fits its levels anew and promises nothing; int8 does if its scale is the largest value's.
    """
    octets = coding.encode(numbers, counts)
    decoded = coding.decode(octets, counts)
    again = coding.encode(decoded, counts)
    if coding.name in ("f32", "f16", "sign", "scale") or (
        coding.name == "int8" and _uses_full_range(octets, counts)
    ):
        assert again == octets


def decoders_agree(update: Update, layout: Layout) -> None:
    """The server's compiled pass takes what the step-by-step decoders take, with the same bits, no more.

    It may leave to them what is not of the usual kind: other modes, no values, or NaN and infinity. What it
    refuses by itself they refuse alike.
    """
    compiled = _taken(decode_usual, update, layout)
    defined = _taken(entries.decode, update, layout)
    if not isinstance(defined, tuple):
        assert compiled in (None, defined)
        return
    if compiled is None:
        usual = update.value_mode in (VALUE_MODES if update.index_mode == sparse.GOLOMB else (SCALE_MODE,))
        assert not usual or not update.values or not np.isfinite(defined[1]).all()
        return
    assert isinstance(compiled, tuple)
    assert compiled[0].tolist() == defined[0].tolist()
    assert compiled[1].tobytes() == defined[1].tobytes()


def _taken(decoder: Callable[..., Any], update: Update, layout: Layout) -> Any:
    coded = update.index_mode, update.value_mode, update.count, update.indices, update.values
    try:
        with np.errstate(all="ignore"):
            return decoder(*coded, layout)
    except Refused as refusal:
        return type(refusal)


def only_the_announced_length_passes(coding: ValueCoding, numbers: Values, counts: Counts) -> None:
    octets = coding.encode(numbers, counts)
    for wrong in [octets[:cut] for cut in range(len(octets))] + [octets + b"\x00"]:
        try:
            coding.decode(wrong, counts)
        except WrongDtype:
            continue
        raise AssertionError(f"{len(wrong)} bytes passed for {len(octets)}")


def per_tensor(numbers: Values, counts: Counts) -> list[NDArray[np.float64]]:
    """The values of each tensor that has any, in double precision."""
    parts = np.split(numbers.astype(np.float64), np.cumsum(counts)[:-1])
    return [part for part in parts if part.size]


def _exact(numbers: Values, decoded: Values, counts: Counts, octets: bytes) -> None:
    assert decoded.tobytes() == numbers.tobytes()


def _half_precision(numbers: Values, decoded: Values, counts: Counts, octets: bytes) -> None:
    halves = [struct.pack("<e", min(65504.0, max(-65504.0, float(number)))) for number in numbers]
    assert octets == b"".join(halves)
    assert decoded.tolist() == [struct.unpack("<e", half)[0] for half in halves]


def _steps_of_a_127th(numbers: Values, decoded: Values, counts: Counts, octets: bytes) -> None:
    """Half a step, and what rounding the step to bfloat16 adds: 127 / 256 of a step at the largest value."""
    for exact, coded in zip(per_tensor(numbers, counts), per_tensor(decoded, counts), strict=True):
        step = np.abs(exact).max() / 127
        assert np.abs(exact - coded).max() <= 0.503 * step
        assert (coded * exact >= 0).all()


def _nearest_level(numbers: Values, decoded: Values, counts: Counts, octets: bytes) -> None:
    """Every magnitude becomes the scale times the nearest of the eight levels in the stream."""
    parts = list(zip(per_tensor(numbers, counts), per_tensor(decoded, counts), strict=True))
    words = np.frombuffer(octets[: 2 * (len(parts) + 8)], "<u2").astype(np.uint32) << 16
    header = words.view(np.float32).astype(np.float64)
    levels = header[len(parts) :]
    for (exact, coded), scale in zip(parts, header, strict=False):
        assert abs(scale - np.abs(exact).mean()) <= 1.01 * SHORTEST_MANTISSA * np.abs(exact).mean()
        distances = np.abs(np.abs(exact)[:, np.newaxis] - scale * levels)
        slack = 1e-6 * (np.abs(exact) + scale * levels.max())
        assert (np.abs(np.abs(exact) - np.abs(coded)) <= distances.min(axis=1) + slack).all()
        assert (np.signbit(coded) == (exact < 0)).all()


def _mean_with_sign(numbers: Values, decoded: Values, counts: Counts, octets: bytes) -> None:
    for exact, coded in zip(per_tensor(numbers, counts), per_tensor(decoded, counts), strict=True):
        mean = np.abs(exact).mean()
        assert np.abs(np.abs(coded) - mean).max() <= 1.01 * SHORTEST_MANTISSA * mean
        assert (np.signbit(coded) == (exact < 0)).all()


def _mean_within_half_a_step(numbers: Values, decoded: Values, counts: Counts, octets: bytes) -> None:
    """Of an eighth of an octave; means beyond the 255 steps become the last, or 0 a half below the first."""
    for exact, coded in zip(per_tensor(numbers, counts), per_tensor(decoded, counts), strict=True):
        mean = np.abs(exact).mean()
        if mean < 2 ** (-191.49 / 8):
            assert (coded == 0).all() or (coded == np.float32(2 ** (-191 / 8))).all()
        else:
            nearest = min(mean, 2 ** (63 / 8))
            assert np.abs(np.log2(coded / nearest)).max() <= 0.501 / 8


_PROMISES: dict[str, Callable[[Values, Values, Counts, bytes], None]] = {
    "f32": _exact,
    "f16": _half_precision,
    "int8": _steps_of_a_127th,
    "codebook4": _nearest_level,
    "sign": _mean_with_sign,
    "scale": _mean_within_half_a_step,
}


def _uses_full_range(octets: bytes, counts: Counts) -> bool:
    present = [int(count) for count in counts if count]
    quantised = np.frombuffer(octets[2 * len(present) :], np.int8).astype(np.float32)
    return all((np.abs(part) == 127).any() for part in per_tensor(quantised, np.array(present, np.int64)))
