"""Binary decisions that code the entries and signs of a grid's stream, and their range coder.

Each tensor counts as a matrix (Layout.grids). The stream codes these parts, tensor by tensor:

    1  the number of entries: the difference from the tensor's share of those that are left, which is
       proportional to the square root of the tensor's size;
    2  the number of entries of each row: a one for each entry, then a zero (but not after the last row);
    3  the number of columns with entries, minus the largest number of entries of a row;
    4  which columns these are: a flag for each column;
    5  row by row, fullest first, which of these columns: a flag for each, and after each 1 the sign.

Numbers are in Elias's gamma code (P. Elias, "Universal codeword sets", 1975). Every bit of it, and every
flag, is a binary decision. Both ends compute its probability of 1 from the earlier decisions, in integers, so
that all machines agree. Decisions that these imply are not coded. A range coder (G. N. N. Martin, 1979), here
M. Mahoney's carryless binary one, turns the decisions into bytes. It narrows an interval low..high of 32 bits
in proportion, and emits the leading bytes that both bounds share.

All functions are in this file because numba caches their code until this file changes. It would not notice
changes of functions in another file.
"""

from math import sqrt

from edgeflock.shared.codecs.compiled import compiled, inlined, inner, zeros

_SPARSEST, _SPARE = 64, 1024
"""The rows x columns with entries of a tensor may be at most _SPARSEST times its entries plus _SPARE."""

_EVEN = 1 << 15
"""A probability of one half, in 65536ths."""

_SURE = 63570
"""The highest expected probability of a column (97%), whatever its activity."""

_ENCODING, _LOW, _HIGH, _CODE, _SHIFTED = range(5)
"""The range coder's state: direction (1: encoding), interval, the stream's next 32 bits (decoding only), and
the number of bytes shifted out of the interval. A value has at most 32 bits and its product with a
probability 48, so Python's integers and signed 64-bit ones agree.

A dividend is at most 2^16 times a number of flags. There int(a / b) equals a // b and is several times
faster: the rounded a / b is below the next integer while a + b < 2^53."""


@inlined
def _bit(coder: list[int], stream: list[int], bit: int, chance: int) -> int:
    """Code `bit`, which is 1 with the probability `chance` / 65536, and return it; decoding reads it."""
    chance = min(max(chance, 16), 65520)
    low, high = coder[_LOW], coder[_HIGH]
    middle = low + ((high - low) * chance >> 16)
    if not coder[_ENCODING]:
        bit = 1 if coder[_CODE] <= middle else 0
    if bit:
        high = middle
    else:
        low = middle + 1
    while low >> 24 == high >> 24:
        position = coder[_SHIFTED]
        if not coder[_ENCODING]:
            coder[_CODE] = (coder[_CODE] & 0xFFFFFF) << 8 | _octet(stream, position + 4)
        elif position < len(stream):
            stream[position] = low >> 24
        low = (low & 0xFFFFFF) << 8
        high = (high & 0xFFFFFF) << 8 | 255
        coder[_SHIFTED] = position + 1
    coder[_LOW], coder[_HIGH] = low, high
    return bit


@inlined
def _octet(stream: list[int], position: int) -> int:
    return stream[position] if position < len(stream) else 0


@inner
def _number(coder: list[int], stream: list[int], number: int, limit: int) -> int:
    """Code 0 <= number <= limit: number + 1 in Elias's gamma code, cut short where `limit` allows it."""
    width = 0
    while 2 << width <= limit + 1 and _bit(coder, stream, min((number + 1) >> (width + 1), 1), _EVEN):
        width += 1
    value = 1
    for place in range(width - 1, -1, -1):
        value = value << 1 | _bit(coder, stream, (number + 1) >> place & 1, _EVEN)
    return value - 1


@inner
def _subset(coder: list[int], stream: list[int], flags: list[int], ones: int) -> None:
    """Code flags, `ones` of which are 1.

    The probability comes from flags after the same two flags, and, with the weight of four flags, from the
    share of ones among the rest.
    """
    hits, seen = zeros(4), zeros(4)
    context = 0
    for j in range(len(flags)):
        left = len(flags) - j
        if 0 < ones < left:
            chance = ((hits[context] << 16) + 4 * int((ones << 16) / left)) / (seen[context] + 4)
            flags[j] = _bit(coder, stream, flags[j], int(chance))
        else:
            flags[j] = min(ones, 1)
        hits[context] += flags[j]
        seen[context] += 1
        context = context << 1 & 2 | flags[j]
        ones -= flags[j]


@inner
def _subset_of_lines(
    coder: list[int], stream: list[int], flags: list[int], ones: int,
    activity: list[int], line: int, lines: int, slots: int,
) -> None:  # fmt: skip
    """Code flags, `ones` of which are 1: one for each line.

    With `slots`, each line has a one for each of its entries, and then a zero, except for the last line.

    The activity of the lines, past[line] and on, predicts how the remaining ones are shared among the
    remaining lines. It has the weight of 16 flags; flags of lines with similar activity (within an octave)
    count besides.
    """
    hits, seen = zeros(16), zeros(16)
    total = 0
    for i in range(line, line + lines):
        total += activity[i]
    left, repeat = total + lines, 0
    if total == 0:
        return _subset(coder, stream, flags, ones)
    for j in range(len(flags)):
        context, relative = repeat, 4 * activity[line] * lines // total
        while relative and context < 14:
            context, relative = context + 2, relative >> 1
        weight = activity[line] + 1
        if 0 < ones < len(flags) - j:
            share = ones * weight
            prior = (share << 16) // (share + left) if slots else min((share << 16) // left, _SURE)
            chance = ((hits[context] << 16) + 16 * prior) // (seen[context] + 16)
            flags[j] = _bit(coder, stream, flags[j], chance)
            hits[context] += flags[j]
            seen[context] += 1
        else:
            flags[j] = min(ones, 1)
        ones -= flags[j]
        repeat = flags[j] & slots
        if not repeat:
            left -= weight
            line += 1


@inner
def _fullest(counts: list[int], widest: int) -> list[int]:
    """The rows that have entries, fullest first; rows with equal counts stay in order."""
    begins, active = zeros(widest + 2), 0
    for row in range(len(counts)):
        if counts[row]:
            begins[widest - counts[row] + 1] += 1
            active += 1
    for i in range(widest):
        begins[i + 1] += begins[i]
    order = zeros(active)
    for row in range(len(counts)):
        if counts[row]:
            order[begins[widest - counts[row]]] = row
            begins[widest - counts[row]] += 1
    return order


@inner
def _matrix(
    coder: list[int], stream: list[int], rows: int, columns: int, activity: list[int], line: int,
    indices: list[int], negative: list[int], start: int, first: int, count: int,
) -> bool:  # fmt: skip
    """Code `count` entries, from number `first` on, of the tensor at `start` with the lines from `line`."""
    slots, flags = zeros(rows + count - 1), zeros(columns)
    if coder[_ENCODING]:
        for e in range(count):
            row = (indices[first + e] - start) // columns
            slots[e + row] = 1
            flags[indices[first + e] - start - row * columns] = 1
    if len(activity):
        _subset_of_lines(coder, stream, slots, count, activity, line, rows, 1)
    else:
        _subset(coder, stream, slots, count)
    counts, begins, row = zeros(rows), zeros(rows), 0
    begins[0] = first
    for e in range(len(slots)):
        if slots[e]:
            counts[row] += 1
        else:
            row += 1
            begins[row] = begins[row - 1] + counts[row - 1]
    widest = max(counts)
    fullest = _fullest(counts, widest)

    width = widest + _number(coder, stream, sum(flags) - widest, min(columns, count) - widest)
    if width > columns or len(fullest) * width > _SPARSEST * count + _SPARE:
        return False
    if len(activity):
        _subset_of_lines(coder, stream, flags, width, activity, line + rows, columns, 0)
    else:
        _subset(coder, stream, flags, width)
    active, rank, found = zeros(width), zeros(columns), 0
    for j in range(columns):
        if flags[j]:
            active[found] = j
            found += 1
            rank[j] = found

    hits, seen = zeros(128), zeros(128)
    # Place 0 is left of the first column.
    sums, cells, above = zeros(width + 1), zeros(width + 1), zeros(width + 1)
    alike, pairs = 10, 11
    for done in range(len(fullest)):
        row = fullest[done]
        place, end, sign = begins[row], begins[row] + counts[row], -1
        for j in range(1, width + 1):
            cells[j] = 0
        if coder[_ENCODING]:
            for e in range(place, end):
                cells[rank[indices[e] - start - row * columns]] = 1
        for j in range(1, width + 1):
            ones, left = end - place, width + 1 - j
            if ones == 0:
                break
            if ones < left:
                prior = int((ones << 16) / left)
                a = 8 * int(8 * sums[j] / (done + 1)) + (prior >> 13)
                b = 64 + 8 * min(sums[j], 7) + 4 * cells[j - 1] + 2 * above[j - 1] + above[j]
                chance = int(((hits[a] << 16) + prior) / (seen[a] + 1)) + int(
                    ((hits[b] << 16) + prior) / (seen[b] + 1)
                )
                seen[a] += 1
                seen[b] += 1
                if not _bit(coder, stream, cells[j], chance >> 1):
                    continue
                hits[a] += 1
                hits[b] += 1
            cells[j] = 1
            sums[j] += 1
            if sign < 0:
                sign = _bit(coder, stream, negative[place], _EVEN)
            else:
                chance = int((alike if sign else pairs - alike) * 65536 / pairs)
                before, sign = sign, _bit(coder, stream, negative[place], chance)
                alike += 1 if sign == before else 0
                pairs += 1
            indices[place] = start + row * columns + active[j - 1]
            negative[place] = sign
            place += 1
        cells, above = above, cells
    return min(sums[1:]) > 0


@compiled("int64(int64, uint8[::1], int64[:, ::1], int64[::1], int64[::1], uint8[::1])")
def code(
    encoding: int, stream: list[int], grids: list[list[int]], activity: list[int], indices: list[int],
    negative: list[int],
) -> int:  # fmt: skip
    """Return the length of the stream of `indices` and `negative`, or -1 if it cannot be coded.

    Encoding writes as much as fits to `stream`. Decoding fills both, and returns -1 for an invalid stream.
    """
    coder = zeros(5)
    coder[_ENCODING], coder[_HIGH] = encoding, 0xFFFFFFFF
    for position in range(4):
        coder[_CODE] = coder[_CODE] << 8 | _octet(stream, position)
    start = first = rest = line = 0
    for t in range(len(grids)):
        rest += int(sqrt(grids[t][0] * grids[t][1]))
    for t in range(len(grids)):
        rows, columns = grids[t][0], grids[t][1]
        size, left, count = rows * columns, len(indices) - first, 0
        weight = int(sqrt(size))
        share = min((2 * left * weight + rest) // max(2 * rest, 1), size)
        rest -= weight
        while encoding and first + count < len(indices) and indices[first + count] < start + size:
            count += 1
        if rest > 0:
            excess = count - share
            folded = _number(coder, stream, 2 * excess - 1 if excess > 0 else -2 * excess, 2 * size)
            count = share + ((folded + 1) >> 1 if folded & 1 else -(folded >> 1))
        else:
            count = left
        if count < 0 or count > min(size, left):
            return -1
        if count and not _matrix(
            coder, stream, rows, columns, activity, line, indices, negative, start, first, count
        ):
            return -1
        start += size
        line += rows + columns
        first += count
    # One more byte selects a value of the interval, unless low is 0: missing bytes count as zeros.
    position, ending = coder[_SHIFTED], coder[_LOW] >> 24
    length = position + min(coder[_LOW], 1)
    if encoding and position < length and position < len(stream):
        stream[position] = ending + 1
    elif not encoding and (len(stream) != length or (position < length and stream[position] != ending + 1)):
        return -1
    return length
