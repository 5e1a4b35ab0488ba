"""Second moments of a model's gradients: the mean square of each entry, in factored form.

For a matrix of squares only the means R of its rows and C of its columns are kept:

    V[i, j] = R[i] C[j] / mean(R)

Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018, section 3. Each
tensor counts as a matrix (Layout.grids); a vector is one row, and stays exact. The L rows and columns of all
tensors are in the order of Layout.lines. On the wire each mean is the nearest power of two, in one byte; zlib
deflates the bytes.
"""

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs.bits import inflate
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]

_PART = 1 << 15
"""Entries of a part: 128 KiB."""

_ONE = 128
"""The byte for 1; 0 stands for 0. Each next byte is twice as much: 2^-127 to 2^127."""


def factor(squares: Vector, layout: Layout) -> Vector:
    """The row and column means of `squares`, float32 [P]: float32 [L]."""
    means = np.zeros(layout.lines[-1], np.float32)
    for start, stop, line, rows, columns in layout.matrices:
        matrix, column = squares[start:stop].reshape(rows, columns), line + rows
        np.add.reduce(matrix, 1, out=means[line:column])
        np.add.reduce(matrix, 0, out=means[column : column + columns])
    return np.divide(means, layout.line_sizes, out=means, casting="unsafe")


def roots(means: Vector, layout: Layout) -> Iterator[tuple[slice, Vector]]:
    """Yield sqrt(V) of `means`, float32 [L] and not negative, as (place in the P entries, float32 [n]).

    The parts fit a processor's cache, and may be overwritten.
    """
    of_lines, begin, end = np.sqrt(means), 0, 0
    buffer = np.empty(max(_PART, int(layout.grids[:, 1].max())), np.float32)
    for _, _, line, rows, columns in layout.matrices:
        row, column = means[line : line + rows], of_lines[line + rows : line + rows + columns]
        mean = np.add.reduce(row) / rows
        parts = np.sqrt(row / mean if mean else np.zeros_like(row))[:, np.newaxis]
        for first in range(0, rows, step := buffer.size // columns):
            factors = parts[first : first + step]
            size = factors.size * columns
            if end + size - begin > buffer.size:
                yield slice(begin, end), buffer[: end - begin]
                begin = end
            np.multiply(factors, column, out=buffer[end - begin :][:size].reshape(-1, columns))
            end += size
    yield slice(begin, end), buffer[: end - begin]


def energies(means: Vector, layout: Layout) -> Vector:
    """The mean square of each tensor, float32 [T]; 0 for an empty one."""
    found = np.zeros(len(layout.tensors), np.float32)
    for tensor, ((rows, columns), line) in enumerate(zip(layout.grids, layout.lines[:-1], strict=True)):
        if rows * columns:
            found[tensor] = means[line : line + rows].mean()
    return found


def encode(means: Vector) -> bytes:
    """Encode `means`, float32 [L], not negative."""
    _, exponents = np.frexp(means.astype(np.float64) * 2**0.5)  # to round, not truncate
    levels = np.where(means > 0, np.clip(exponents + (_ONE - 1), 1, 255), 0)
    return zlib.compress(levels.astype(np.uint8).tobytes(), 9)


def decode(octets: bytes, layout: Layout) -> Vector:
    """Decode the means, float32 [L]. Raises WrongDtype unless the number matches `layout`."""
    count = int(layout.lines[-1])
    levels = inflate(octets, count)
    if levels is None:
        raise WrongDtype(f"the second moments of this model are {count} bytes, deflated")
    exponents = np.frombuffer(levels, np.uint8).astype(np.int32)
    return np.where(exponents > 0, np.ldexp(np.float32(1), exponents - _ONE), np.float32(0))
