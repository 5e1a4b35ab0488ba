"""Which parameters an update touches and the signs of its values, in one arithmetic-coded stream.

The largest entries of a gradient are no random set. The gradient of a layer is a sum of outer products, one
for each sample, so they crowd where active rows (neurons) and active columns (inputs) of its matrix cross,
and the entries of a row tend to have one sign. Each tensor is taken for a matrix (Layout.grids), and the
stream tells, tensor by tensor,

    1  how many entries it has, as the difference from its share of what is left, which goes with the
       square root of the tensor's size;
    2  how many each row has: for each row a one for each entry, then a zero (but not after the last row);
    3  how many columns have any: the number, less the most that one row has;
    4  which: a flag for each column;
    5  row by row, fullest first, which of these columns: a flag for each, and after each 1 the sign.

Numbers are in Elias's gamma code (P. Elias, "Universal codeword sets", 1975). Every bit of it, and every
flag, is a binary decision with a probability for 1 that both ends compute from the decisions before it, in
integers, so that they agree on every machine; what can be told from them is not coded. A range coder
(G. N. N. Martin, 1979), here M. Mahoney's carryless binary one, turns the decisions into bytes: it narrows an
interval low..high of 32 bits in proportion, and whatever leading bytes both ends share go out.

Each set of signed entries has one stream. It takes time in proportion to the sizes of the tensors that have
entries and to rows x columns that have any, which may be _SPARSEST for each entry: beyond that nothing is
gained over Golomb's code, and encode gives up.
"""

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs.compiled import COMPILED, compiled, inner
from edgeflock.shared.errors import IndexMalformed, IndexOutOfRange
from edgeflock.shared.model.layout import Layout

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SPARSEST, _SPARE = 64, 1024
"""A tensor's rows x columns with entries may be _SPARSEST times its entries, and _SPARE more."""

_EVEN = 1 << 15
"""A probability of one half, in 65536ths."""

_ENCODING, _LOW, _HIGH, _CODE, _AT = range(5)
"""The range coder's state: direction (1: encoding), interval, the stream's next 32 bits (decoding only), and
how many bytes have been shifted out of the interval. It never holds more than 32 bits, a product with a
probability 48: the same in Python's integers and in signed 64-bit ones."""


def encode(where: Indices, negative: Flags, layout: Layout) -> bytes | None:
    """Code strictly increasing indices `where` (int64 [k]) and where values are `negative` (bool [k]).

    None if they are too scattered for this code, or its stream would not be of _plausible length. None at all
    take no bytes.
    """
    if not where.size:
        return b""
    fits, stream = _code(1, _handed([]), *_shapes(layout), _handed(where), _handed(negative))
    return bytes(stream) if fits and _plausible(len(stream), where.size) else None


def decode(octets: bytes, count: int, layout: Layout) -> tuple[Indices, Flags]:
    """(indices int64 [count], strictly increasing and in range; whether the value there is negative).

    Takes only what encode gives. Allocates at most 250 bytes per announced entry, and only after the count
    has been held against the length of the stream, and 30 per row and column of the largest tensor.
    Raises IndexMalformed or IndexOutOfRange.
    """
    if not _plausible(len(octets), count):
        raise IndexMalformed(
            f"{len(octets)} bytes do not hold {count} entries: 1 to 64 bits each, and 64 bytes"
        )
    if count > layout.size:
        raise IndexOutOfRange(f"{count} entries for {layout.size} parameters")
    if not count:
        if octets:
            raise IndexMalformed(f"no entries take no bytes, not {len(octets)}")
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    stream = _handed(np.frombuffer(octets, np.uint8))
    where, negative = _handed(np.zeros(count)), _handed(np.zeros(count))
    fits, _ = _code(0, stream, *_shapes(layout), where, negative)
    if not fits:
        raise IndexMalformed(f"the stream does not hold {count} entries as an encoder writes them")
    return np.asarray(where, np.int64), np.asarray(negative, np.bool_)


def _plausible(octets: int, count: int) -> bool:
    """Whether a stream has 1 to 64 bits for each entry, or up to 64 bytes more."""
    return count <= 8 * octets and octets <= 8 * count + 64


def _handed(numbers: Any) -> Any:
    """`numbers` as _code takes them: a new int64 array, or a list where it is plain Python."""
    array = np.array(numbers, np.int64)
    return array if COMPILED else array.tolist()


def _shapes(layout: Layout) -> tuple[Any, Any, Any]:
    """Rows and columns of each tensor, and its weight in the shares of entries."""
    rows, columns = layout.grids.T
    return _handed(rows), _handed(columns), _handed([isqrt(size) for size in (rows * columns).tolist()])


@inner
def _bit(coder: list[int], stream: list[int], bit: int, chance: int) -> int:
    """Code `bit`, which is 1 with a probability of `chance` / 65536; when decoding, say what it is."""
    chance = min(max(chance, 16), 65520)
    middle = coder[_LOW] + ((coder[_HIGH] - coder[_LOW]) * chance >> 16)
    if not coder[_ENCODING]:
        bit = 1 if coder[_CODE] <= middle else 0
    if bit:
        coder[_HIGH] = middle
    else:
        coder[_LOW] = middle + 1
    while coder[_LOW] >> 24 == coder[_HIGH] >> 24:
        if coder[_ENCODING]:
            stream.append(coder[_LOW] >> 24)
        else:
            coder[_CODE] = (coder[_CODE] & 0xFFFFFF) << 8 | _octet(stream, coder[_AT] + 4)
        coder[_LOW] = (coder[_LOW] & 0xFFFFFF) << 8
        coder[_HIGH] = (coder[_HIGH] & 0xFFFFFF) << 8 | 255
        coder[_AT] += 1
    return bit


@inner
def _octet(stream: list[int], at: int) -> int:
    return stream[at] if at < len(stream) else 0


@inner
def _number(coder: list[int], stream: list[int], number: int, limit: int) -> int:
    """Code 0 <= number <= limit: number + 1 in Elias's gamma code, which ends early where limit does."""
    width = 0
    while 2 << width <= limit + 1 and _bit(coder, stream, min((number + 1) >> (width + 1), 1), _EVEN):
        width += 1
    value = 1
    for place in range(width - 1, -1, -1):
        value = value << 1 | _bit(coder, stream, (number + 1) >> place & 1, _EVEN)
    return value - 1


@inner
def _subset(coder: list[int], stream: list[int], flags: list[int], ones: int) -> None:
    """Code flags of which so many are 1. Each is as likely as after the same two flags before, and, worth
    four flags, as the ones left are among all left."""
    hits, seen = [0] * 4, [0] * 4
    context = 0
    for j in range(len(flags)):
        left = len(flags) - j
        if 0 < ones < left:
            chance = ((hits[context] << 16) + 4 * ((ones << 16) // left)) // (seen[context] + 4)
            flags[j] = _bit(coder, stream, flags[j], chance)
        else:
            flags[j] = min(ones, 1)
        hits[context] += flags[j]
        seen[context] += 1
        context = context << 1 & 2 | flags[j]
        ones -= flags[j]


@inner
def _matrix(
    coder: list[int], stream: list[int], rows: int, columns: int, where: list[int], negative: list[int],
    start: int, first: int, count: int,
) -> bool:  # fmt: skip
    """Code `count` entries from number `first` on, those of the tensor that begins at `start`."""
    slots, flags = [0] * (rows + count - 1), [0] * columns
    if coder[_ENCODING]:
        for e in range(count):
            slots[e + (where[first + e] - start) // columns] = 1
            flags[(where[first + e] - start) % columns] = 1
    _subset(coder, stream, slots, count)
    counts, begins, row = [0] * rows, [first] * rows, 0
    for e in range(len(slots)):
        if slots[e]:
            counts[row] += 1
        else:
            row += 1
            begins[row] = begins[row - 1] + counts[row - 1]
    widest = max(counts)
    fullest = [(widest - counts[i]) * rows + i for i in range(rows) if counts[i]]
    fullest.sort()

    width = widest + _number(coder, stream, sum(flags) - widest, min(columns, count) - widest)
    if width > columns or len(fullest) * width > _SPARSEST * count + _SPARE:
        return False
    _subset(coder, stream, flags, width)
    active = [j for j in range(columns) if flags[j]]
    rank = [0] * columns
    for j in range(width):
        rank[active[j]] = j + 1

    hits, seen = [0] * 128, [0] * 128
    sums, above = [0] * (width + 1), [0] * (width + 1)  # place 0 stands left of the first column
    alike, pairs = 10, 11
    for done in range(len(fullest)):
        row = fullest[done] % rows
        at, end = begins[row], begins[row] + counts[row]
        cells, sign = [0] * (width + 1), -1
        if coder[_ENCODING]:
            for e in range(at, end):
                cells[rank[(where[e] - start) % columns]] = 1
        for j in range(1, width + 1):
            ones, left = end - at, width + 1 - j
            if ones == 0:
                break
            if ones < left:
                a = 8 * (8 * sums[j] // (done + 1)) + 8 * ones // left
                b = 64 + 8 * min(sums[j], 7) + 4 * cells[j - 1] + 2 * above[j - 1] + above[j]
                prior = (ones << 16) // left
                chance = ((hits[a] << 16) + prior) // (seen[a] + 1) + ((hits[b] << 16) + prior) // (
                    seen[b] + 1
                )
                cells[j] = _bit(coder, stream, cells[j], chance >> 1)
                for context in (a, b):
                    hits[context] += cells[j]
                    seen[context] += 1
            else:
                cells[j] = 1
            if cells[j]:
                if sign < 0:
                    sign = _bit(coder, stream, negative[at], _EVEN)
                else:
                    chance = (alike if sign else pairs - alike) * 65536 // pairs
                    before, sign = sign, _bit(coder, stream, negative[at], chance)
                    alike += 1 if sign == before else 0
                    pairs += 1
                where[at] = start + row * columns + active[j - 1]
                negative[at] = sign
                at += 1
        for j in range(1, width + 1):
            sums[j] += cells[j]
        above = cells
    return min(sums[1:]) > 0


@compiled("Tuple((boolean, List(int64)))(int64" + 6 * ", int64[::1]" + ")")
def _code(
    encoding: int, octets: list[int], rows: list[int], columns: list[int], weights: list[int],
    where: list[int], negative: list[int],
) -> tuple[bool, list[int]]:  # fmt: skip
    """(whether it went well, the stream). Decoding fills `where` and `negative`, as long as the count."""
    stream = [octet for octet in octets]
    code = 0
    for at in range(4):
        code = code << 8 | _octet(stream, at)
    coder = [encoding, 0, 0xFFFFFFFF, code, 0]
    start = first = rest = 0
    for weight in weights:
        rest += weight
    for t in range(len(rows)):
        size, left, count = rows[t] * columns[t], len(where) - first, 0
        share = min((2 * left * weights[t] + rest) // max(2 * rest, 1), size)
        rest -= weights[t]
        while encoding and first + count < len(where) and where[first + count] < start + size:
            count += 1
        if rest > 0:
            excess = count - share
            folded = _number(coder, stream, 2 * excess - 1 if excess > 0 else -2 * excess, 2 * size)
            count = share + ((folded + 1) >> 1 if folded & 1 else -(folded >> 1))
        else:
            count = left
        if count < 0 or count > min(size, left):
            return False, stream
        if count and not _matrix(coder, stream, rows[t], columns[t], where, negative, start, first, count):
            return False, stream
        start += size
        first += count
    # One byte more tells where in the interval, unless that begins with zeros, as which missing bytes count.
    ending = [(coder[_LOW] >> 24) + 1 for _ in range(min(coder[_LOW], 1))]
    if encoding:
        return True, stream + ending
    return len(stream) == coder[_AT] + len(ending) and stream[coder[_AT] :] == ending, stream
