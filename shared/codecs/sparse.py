"""Coding of the parameters that an update touches: strictly increasing indices <-> bytes.

Runs of indices, such as a part of a model, take two LEB128 numbers per run. The first is the number of
indices since the run before (minus one from the second run on); the second is the run's length minus one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgeflock.shared.codecs import golomb
from edgeflock.shared.codecs.golomb import Indices, leb128
from edgeflock.shared.codecs.others import Codings
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange, IndexRepeated, IndexUnsorted, WrongDtype

DENSE, RAW, GOLOMB, GRID, RUNS = 0, 1, 2, 3, 4
"""Index modes: all parameters; one little-endian u32 each; Golomb-coded gaps; with signs (grid.py); runs."""


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


def _encode_runs(indices: Indices, size: int) -> bytes:
    if not indices.size:
        return b""
    begins = np.flatnonzero(np.concatenate(([True], np.diff(indices) > 1)))
    first, last = indices[begins], indices[np.append(begins[1:], indices.size) - 1]
    gaps = first - np.concatenate(([0], last[:-1] + 2))
    return b"".join(map(leb128, np.column_stack((gaps, last - first)).ravel().tolist()))


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
    "golomb": IndexCoding(GOLOMB, golomb.encode, golomb.decode),
    "raw": IndexCoding(RAW, _encode_raw, _decode_raw),
    "grid": IndexCoding(GRID, None, None),
    "runs": IndexCoding(RUNS, _encode_runs, _decode_runs),
}

CODINGS = Codings("index", _OURS, IndexCoding)
"""Index codings by name."""
