"""Task-order matrices C [r, n] of the paper. Column j has worker j's tasks, in order from top to bottom.

Tasks and workers count from 0 here, from 1 in the paper.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError

Matrix = NDArray[np.int64]
"""[r, n]: C[i, j] is the task that worker j computes as its i-th."""


def cyclic(n: int, r: int) -> Matrix:
    """Equation 3: C(i, j) = g(j + i - 1). Every worker goes up, each from a task of its own.

    >>> cyclic(3, 2)
    array([[0, 1, 2],
           [1, 2, 0]])
    """
    _check(n, r)
    row, column = np.ogrid[:r, :n]
    return (column + row) % n


def staircase(n: int, r: int) -> Matrix:
    """Equation 6: C(i, j) = g(j + (-1)^(j-1) (i - 1)). The paper's odd workers go up, the even ones down.

    >>> staircase(4, 2)
    array([[0, 1, 2, 3],
           [1, 0, 3, 2]])
    """
    _check(n, r)
    row, column = np.ogrid[:r, :n]
    return (column + np.where(column % 2, -row, row)) % n


def positions(matrix: Matrix) -> NDArray[np.float64]:
    """[tasks, workers]: the rank, from 1 on, of a task among a worker's tasks.

    Infinity if the worker never computes it.
    """
    r, n = matrix.shape
    order = np.full((n, n), np.inf)
    for row in reversed(range(r)):  # if a column has a task twice, the first one counts
        order[matrix[row], np.arange(n)] = row + 1
    return order


def _check(n: int, r: int) -> None:
    if not 1 <= r <= n:
        raise ConfigError(f"r = {r}: each of n = {n} workers computes 1 to {n} of the {n} tasks")
