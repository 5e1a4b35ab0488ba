"""Second moments of a model's gradients: the mean square of each entry, in factored form.

For a matrix of squares only the means R of its rows and C of its columns are kept:

    V[i, j] = R[i] C[j] / mean(R)

Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018, section 3. Each
tensor counts as a matrix (Layout.grids); a vector is one row, and stays exact. The L rows and columns of all
tensors are in the order of Layout.lines. On the wire each mean is the nearest power of two, in one byte; zlib
deflates the bytes.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs.bits import inflate
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]

_ONE = 128
"""The byte for 1; 0 stands for 0. Each next byte is twice as much: 2^-127 to 2^127."""


def factor(squares: Vector, layout: Layout) -> Vector:
    """The row and column means of `squares`, float32 [P]: float32 [L]."""
    means = np.zeros(layout.lines[-1], np.float32)
    for start, stop, line, (rows, columns) in _tensors(layout):
        matrix = squares[start:stop].reshape(rows, columns)
        matrix.mean(axis=1, out=means[line : line + rows])
        matrix.mean(axis=0, out=means[line + rows : line + rows + columns])
    return means


def roots(means: Vector, layout: Layout) -> Vector:
    """sqrt(V) of `means`, float32 [L] and not negative: float32 [P]."""
    spread = np.zeros(layout.size, np.float32)
    for start, stop, line, (rows, columns) in _tensors(layout):
        row = means[line : line + rows]
        column = np.sqrt(means[line + rows : line + rows + columns])
        if mean := float(row.mean()):
            np.outer(np.sqrt(row / np.float32(mean)), column, out=spread[start:stop].reshape(rows, columns))
    return spread


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


def _tensors(layout: Layout) -> list[tuple[int, int, int, tuple[int, int]]]:
    """(start, stop, first line, (rows, columns)) of each tensor that is not empty."""
    return [
        (tensor.start, tensor.stop, int(line), (int(grid[0]), int(grid[1])))
        for tensor, grid, line in zip(layout.tensors, layout.grids, layout.lines[:-1], strict=True)
        if tensor.stop > tensor.start
    ]
