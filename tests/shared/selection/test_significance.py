"""The significance filter against its formula, in exact fractions, and through every coding."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.selection import decay_threshold, select_significant

SIXTEENTHS = st.integers(-64, 64).map(lambda n: n / 16)
"""Numbers whose products float32 has exactly."""
PAIRS = st.lists(st.tuples(SIXTEENTHS, SIXTEENTHS), min_size=1, max_size=40)
THRESHOLDS = st.integers(0, 32).map(lambda n: n / 16)

CODINGS = [
    (indices.mode, worth.mode)
    for name, indices in sparse.CODINGS.items()
    for value, worth in values.CODINGS.items()
    if (name == "grid") == (value == "scale")
]


def vectors(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    accumulated, parameters = np.array(pairs, np.float32).T
    return accumulated, parameters


@given(PAIRS, THRESHOLDS)
def test_what_is_beyond_its_part_of_the_parameter_is_significant(
    pairs: list[tuple[float, float]], threshold: float
) -> None:
    expected = [
        k
        for k, (update, value) in enumerate(pairs)
        if (abs(Fraction(update) / Fraction(value)) > Fraction(threshold) if value else update)
    ]
    assert select_significant(*vectors(pairs), threshold).tolist() == expected


@given(PAIRS)
def test_at_threshold_0_everything_goes_but_zeros(pairs: list[tuple[float, float]]) -> None:
    accumulated, parameters = vectors(pairs)
    assert select_significant(accumulated, parameters, 0).tolist() == np.flatnonzero(accumulated).tolist()


@given(PAIRS, THRESHOLDS, THRESHOLDS)
def test_a_lower_threshold_lets_as_much_through_and_more(
    pairs: list[tuple[float, float]], one: float, other: float
) -> None:
    least, most = (set(select_significant(*vectors(pairs), t).tolist()) for t in sorted((one, other))[::-1])
    assert least <= most


@pytest.mark.parametrize("threshold", [0.0, 1e-3, 1e30])
def test_extreme_numbers_are_compared_without_a_warning(threshold: float) -> None:
    accumulated = np.array([1e38, 1e-38, 0, 1], np.float32)
    assert 0 in select_significant(accumulated, np.zeros(4, np.float32), threshold)
    select_significant(accumulated, np.full(4, 3e38, np.float32), threshold)


def test_it_decays_with_the_root_of_the_updates() -> None:
    assert decay_threshold(0.5, 1) == 0.5
    assert decay_threshold(0.5, 16) == 0.125
    assert decay_threshold(0.5, 2) == 0.5 / math.sqrt(2)


@pytest.mark.parametrize(("indices", "worth"), CODINGS)
@given(pairs=st.lists(st.tuples(SIXTEENTHS, SIXTEENTHS), min_size=24, max_size=24), threshold=THRESHOLDS)
def test_every_coding_takes_its_index_sets(
    indices: int, worth: int, pairs: list[tuple[float, float]], threshold: float
) -> None:
    """Empty ones too: in a step nothing may be significant."""
    layout = Layout.from_shapes([("kernel", (4, 5)), ("bias", (4,))])
    accumulated, parameters = vectors(pairs)
    where = select_significant(accumulated, parameters, threshold)
    coded = entries.encode(accumulated[where], where, layout, indices, worth)
    there, delta = entries.decode(*coded[:2], where.size, *coded[2:], layout)
    assert not isinstance(there, slice)
    assert there.tolist() == where.tolist()
    if worth == values.CODINGS["f32"].mode:
        assert delta.tolist() == accumulated[where].tolist()
