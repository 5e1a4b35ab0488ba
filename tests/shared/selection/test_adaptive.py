"""The rule of adaptive compression against its formula, in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.shared.selection import WEIGHT, NormAverages, follow_norms, is_sufficient


def vector(*entries: float) -> NDArray[np.float32]:
    return np.array(entries, np.float32)


def at(*indices: int) -> NDArray[np.int64]:
    return np.array(indices, np.int64)


def test_the_first_gradient_begins_the_averages() -> None:
    assert follow_norms(None, vector(3, 0, -4), at(2)) == NormAverages(25, 16)


def test_each_next_one_moves_them_by_its_weight() -> None:
    """From 100 and 80 by a tenth of the way to 200 and 60."""
    norms = follow_norms(NormAverages(100, 80), vector(10, -10, 0), at(1))
    assert norms == follow_norms(NormAverages(100, 80), vector(0, 10, 10), at(2))
    assert (norms.whole, norms.selected) == (100 + WEIGHT * 100, 80 + WEIGHT * 20)


@pytest.mark.parametrize(("delta", "enough"), [(0.2, False), (0.2499, False), (0.25, True), (0.5, True)])
def test_a_selection_will_do_up_to_the_threshold(delta: float, enough: bool) -> None:
    """Of 4 it keeps 3: it loses a quarter."""
    assert is_sufficient(NormAverages(4, 3), delta) is enough


def test_averages_are_compared_not_gradients() -> None:
    """One gradient that loses all of a little does not change what a hundred times larger ones say."""
    norms = follow_norms(None, vector(10, 1), at(0))
    norms = follow_norms(norms, vector(1, 0), at(1))
    assert is_sufficient(norms, 0.02)
    assert not is_sufficient(follow_norms(None, vector(1, 0), at(1)), 0.02)


gradients = st.lists(st.lists(st.integers(-999, 999), min_size=3, max_size=3), min_size=1, max_size=30)


@given(gradients, st.floats(0.01, 0.99))
def test_the_rule_is_the_paper_s(steps: list[list[int]], delta: float) -> None:
    """| |g|^2 - |Topk(g)|^2 | / |g|^2 <= delta, of averages whose last k steps weigh w (1 - w)^k."""
    norms, w = None, Fraction(WEIGHT)
    whole = kept = Fraction(0)
    for step in steps:
        top = max(range(3), key=lambda k: abs(step[k]))
        norms = follow_norms(norms, vector(*step), at(top))
        first = step is steps[0]
        whole = sum(x * x for x in step) * (1 if first else w) + whole * (1 - w)
        kept = step[top] ** 2 * (1 if first else w) + kept * (1 - w)
    assert norms is not None
    assert norms.whole == pytest.approx(float(whole), rel=1e-9)
    assert norms.selected == pytest.approx(float(kept), rel=1e-9)
    lost = abs(whole - kept) / whole if whole else Fraction(0)
    if abs(lost - Fraction(delta)) > 1e-9:
        assert is_sufficient(norms, delta) is (lost <= Fraction(delta))


@given(gradients)
def test_at_one_it_always_does(steps: list[list[int]]) -> None:
    norms = None
    for step in steps:
        norms = follow_norms(norms, vector(*step), at(0))
        assert is_sufficient(norms, 1.0)


def test_a_gradient_of_zeros_needs_no_more_than_its_selection() -> None:
    assert is_sufficient(follow_norms(None, np.zeros(4, np.float32), at(0)), 1e-6)


def test_large_entries_do_not_overflow() -> None:
    norms = follow_norms(None, vector(3e38, 3e38), at(0))
    assert norms.whole == pytest.approx(2 * norms.selected)
    assert is_sufficient(norms, 0.51)
    assert not is_sufficient(norms, 0.49)
