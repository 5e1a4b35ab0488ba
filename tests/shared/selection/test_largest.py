"""The selection against a sort: the largest fraction of each tensor, shared out as the balance says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout
from edgeflock.shared.selection import grow_fraction, quotas, select_largest


def assert_largest(gradient: NDArray[np.float32], layout: Layout, fraction: float) -> None:
    """The selection has the magnitudes of a full sort, tensor by tensor, and leaves zeros out."""
    selected = select_largest(gradient, layout, fraction)
    assert selected.dtype == np.int64
    assert (np.diff(selected) > 0).all()
    found = 0
    for tensor in layout.tensors:
        here = selected[(tensor.start <= selected) & (selected < tensor.stop)]
        found += here.size
        magnitudes = np.abs(gradient[tensor.start : tensor.stop])
        if magnitudes.size == 0:
            continue
        largest = np.sort(magnitudes)[::-1][: max(1, round(fraction * magnitudes.size))]
        expected = largest[largest > 0]
        if not gradient.any():
            continue
        assert np.sort(np.abs(gradient[here]))[::-1].tolist() == expected.tolist()
    assert found == selected.size > 0


# Few distinct values, so that ties and zeros are the rule.
tied = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 1e-45, -3e38])
entries = st.one_of(tied, st.floats(allow_nan=False, allow_infinity=False, width=32))


@given(
    tensors=st.lists(st.lists(entries, max_size=30), min_size=1, max_size=5).filter(any),
    fraction=st.one_of(st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0]), st.floats(1e-6, 1)),
)
def test_small_tensors(tensors: list[list[float]], fraction: float) -> None:
    layout = Layout.from_shapes((str(t), (len(tensor),)) for t, tensor in enumerate(tensors))
    assert_largest(np.array([x for tensor in tensors for x in tensor], np.float32), layout, fraction)


def test_at_least_one_of_each_tensor_that_has_anything() -> None:
    layout = Layout.from_shapes([("a", (3,)), ("none", (0,)), ("zeros", (4,)), ("scalar", ())])
    gradient = np.array([1, -5, 2, 0, 0, 0, 0, 0.25], np.float32)
    assert select_largest(gradient, layout, 0.001).tolist() == [1, 7], "zeros say nothing"


def test_the_count_is_the_rounded_fraction_of_each_tensor() -> None:
    layout = Layout.from_shapes([("a", (200,)), ("b", (149,)), ("c", (151,))])
    selected = select_largest(np.arange(1, 501, dtype=np.float32), layout, 0.01)
    assert layout.counts(selected).tolist() == [2, 1, 2]


LARGE = 70_001
"""Beyond 16,384 entries the threshold comes from a sample."""


def large_gradients() -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(4)
    normal = random.standard_normal(LARGE).astype(np.float32)
    sparse = np.where(random.random(LARGE) < 0.003, normal, 0).astype(np.float32)
    clustered = np.zeros(LARGE, np.float32)
    clustered[30_000:30_400] = normal[:400]
    beside_the_sample = np.zeros(LARGE, np.float32)
    beside_the_sample[1::17] = normal[1::17]  # the sample takes every 17th, from 0
    only_the_sample = np.full(LARGE, 1e-3, np.float32)
    only_the_sample[::17] = 1 + np.abs(normal[::17])
    steps = np.round(normal * 2)
    equal = np.full(LARGE, -0.5, np.float32)
    one = np.zeros(LARGE, np.float32)
    one[LARGE - 1] = 1e-45
    return {
        "normal": normal,
        "nearly all zeros": sparse,
        "clustered": clustered,
        "where the sample does not look": beside_the_sample,
        "where only the sample looks": only_the_sample,
        "many ties": steps,
        "all equal": equal,
        "one": one,
        "zeros": np.zeros(LARGE, np.float32),
        "rising": np.arange(LARGE, dtype=np.float32),
        "falling": -np.arange(LARGE, dtype=np.float32)[::-1].copy(),
    }


@pytest.mark.parametrize("fraction", [1e-6, 0.001, 0.01, 0.06, 0.1, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("gradient", large_gradients().values(), ids=large_gradients().keys())
def test_large_tensors(gradient: NDArray[np.float32], fraction: float) -> None:
    assert_largest(gradient, Layout.from_shapes([("a", (LARGE - 20_000,)), ("b", (20_000,))]), fraction)


@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 32_769, 300_000])
def test_sizes_around_the_sampled_path(size: int) -> None:
    gradient = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert_largest(gradient, Layout.from_shapes([("a", (size,))]), 0.01)


def test_the_gradient_stays_as_it_is() -> None:
    gradient = np.random.default_rng(0).standard_normal(LARGE).astype(np.float32)
    before = gradient.copy()
    select_largest(gradient, Layout.from_shapes([("a", (LARGE,))]), 0.01)
    assert gradient.tobytes() == before.tobytes()


sizes = st.lists(st.integers(0, 5000), min_size=1, max_size=6).filter(any)
fractions = st.floats(1e-6, 1)


def vectors(*lengths: int) -> Layout:
    return Layout.from_shapes((str(t), (length,)) for t, length in enumerate(lengths))


@given(sizes, fractions)
def test_balance_one_is_adacomp_s(lengths: list[int], fraction: float) -> None:
    """max(1, round(c n)), and none of a tensor without entries."""
    expected = tuple(max(1, round(fraction * n)) if n else 0 for n in lengths)
    assert quotas(vectors(*lengths), fraction, 1.0) == expected


@pytest.mark.parametrize(("fraction", "lengths"), [(0.1, (25, 33)), (0.1, (45, 1)), (0.1, (45, 156))])
def test_balance_one_is_adacomp_s_at_halves(fraction: float, lengths: tuple[int, ...]) -> None:
    assert quotas(vectors(*lengths), fraction, 1.0) == tuple(max(1, round(fraction * n)) for n in lengths)


@given(sizes, fractions, st.floats(0, 1))
def test_quotas_are_shares_of_the_whole(lengths: list[int], fraction: float, balance: float) -> None:
    """n^balance of round(c P), each rounded, cut to at least one and at most all."""
    got = quotas(vectors(*lengths), fraction, balance)
    weights = [length**balance if length else 0.0 for length in lengths]
    for quota, length, weight in zip(got, lengths, weights, strict=True):
        assert isinstance(quota, int)
        assert min(1, length) <= quota <= length
        share = fraction * sum(lengths) * weight / sum(weights)
        assert quota == pytest.approx(min(max(1, share), length), abs=0.5 + 1e-6) or not length
    if all(quota < length for quota, length in zip(got, lengths, strict=True) if length):
        # Nothing was cut above; what is given to those with less than one comes on top.
        whole = fraction * sum(lengths)
        assert whole - len(lengths) / 2 - 1e-6 <= sum(got) <= whole + len(lengths) + 1e-6


@given(st.lists(st.integers(30, 5000), min_size=1, max_size=6), st.integers(1, 30))
def test_balance_zero_is_equal_shares(lengths: list[int], each: int) -> None:
    fraction = each * len(lengths) / sum(lengths)
    assert quotas(vectors(*lengths), fraction, 0.0) == (each,) * len(lengths)


def test_less_balance_gives_small_tensors_more() -> None:
    """10,000 and 100 at c = 0.0101: 102 in all. As n: 101 and 1; as sqrt(n): 93 and 9; equal: 51 each."""
    layout = vectors(10_000, 100)
    assert quotas(layout, 0.0101, 1.0) == (101, 1)
    assert quotas(layout, 0.0101, 0.5) == (93, 9)
    assert quotas(layout, 0.0101, 0.0) == (51, 51)


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_quotas_of_empty_tensors_and_of_scalars(balance: float) -> None:
    layout = Layout.from_shapes([("none", (0,)), ("a", (3,)), ("also none", (5, 0)), ("scalar", ())])
    assert quotas(layout, 1e-6, balance) == (0, 1, 0, 1)
    assert quotas(layout, 1.0, 1.0) == (0, 3, 0, 1)


@pytest.mark.parametrize("balance", [0.0, 0.3, 1.0])
def test_the_selection_is_each_tensor_s_largest_by_quota(balance: float) -> None:
    layout = Layout.from_shapes([("a", (40, 10)), ("none", (0,)), ("b", (25,)), ("scalar", ())])
    gradient = np.random.default_rng(2).standard_normal(layout.size).astype(np.float32)
    selected = select_largest(gradient, layout, 0.1, balance)
    expected: list[int] = []
    for tensor, quota in zip(layout.tensors, quotas(layout, 0.1, balance), strict=True):
        order = np.argsort(-np.abs(gradient[tensor.start : tensor.stop]), kind="stable")
        expected += sorted((order[:quota] + tensor.start).tolist())
    assert selected.tolist() == expected
    assert layout.counts(selected).tolist() == list(quotas(layout, 0.1, balance))


@pytest.mark.parametrize(
    ("fraction", "interval", "usual", "expected"),
    [
        (0.01, 3, 5, 0.01),
        (0.01, 5, 5, 0.01),
        (0.01, 10, 5, 0.02),
        (0.01, 1000, 5, 0.08),  # eight times
        (0.03, 1000, 5, 0.16),  # 16 times the root of 10,000
        (0.2, 1000, 5, 0.2),
        (0.7, 1000, 5, 0.7),
        (0.01, 1000, 0, 0.01),
        (0.01, 1000, -1, 0.01),
        (0.01, 0, 5, 0.01),
    ],
)
def test_who_comes_rarely_sends_more(fraction: float, interval: float, usual: int, expected: float) -> None:
    assert grow_fraction(fraction, interval, usual, Layout.from_shapes([("w", (10_000,))])) == pytest.approx(
        expected
    )
