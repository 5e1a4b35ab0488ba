"""Task-order matrices: the paper's equations, and what any of them must be."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.papers.scheduling.matrices import Matrix, cyclic, positions, staircase
from edgeflock.shared.errors import ConfigError

SIZES = st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def g(number: int, n: int) -> int:
    """Equation 4, of the paper's numbers from 1 on."""
    return number - n if number > n else number + n if number < 1 else number


@given(SIZES)
def test_they_are_those_of_equations_3_and_6(size: tuple[int, int]) -> None:
    n, r = size
    up, stairs = cyclic(n, r), staircase(n, r)
    for i in range(1, r + 1):
        for j in range(1, n + 1):
            assert up[i - 1, j - 1] == g(j + i - 1, n) - 1
            assert stairs[i - 1, j - 1] == g(j + (-1) ** (j - 1) * (i - 1), n) - 1


@given(SIZES)
def test_no_worker_computes_a_task_twice(size: tuple[int, int]) -> None:
    n, r = size
    for matrix in (cyclic(n, r), staircase(n, r)):
        assert matrix.shape == (r, n)
        assert all(len(set(column)) == r for column in matrix.T)
        assert set(matrix.flat) <= set(range(n))


@given(SIZES)
def test_in_a_row_of_cyclic_each_task_is_there_once(size: tuple[int, int]) -> None:
    n, r = size
    assert all(sorted(row) == list(range(n)) for row in cyclic(n, r))
    if n % 2 == 0:  # else the first and the last both go up, towards each other
        assert all(set(np.bincount(row, minlength=n)) <= {0, 1, 2} for row in staircase(n, r))


def test_positions_are_those_in_the_columns() -> None:
    order = positions(np.array([[0, 1, 1], [1, 2, 1]]))
    never = np.inf
    assert order.tolist() == [[1, never, never], [2, 1, 1], [never, 2, never]]


@pytest.mark.parametrize("make", [cyclic, staircase])
@pytest.mark.parametrize("r", [0, 4])
def test_a_load_that_cannot_be_is_refused(make: Callable[[int, int], Matrix], r: int) -> None:
    with pytest.raises(ConfigError, match=f"r = {r}: each of n = 3"):
        make(3, r)
