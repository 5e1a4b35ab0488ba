"""AdaComp's selection against a sort: the largest fraction of each tensor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.shared.compression import select_largest
from edgeflock.shared.layout import Layout


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
        expected = largest[largest > 0] if largest[0] > 0 else np.zeros(1)
        assert np.sort(np.abs(gradient[here]))[::-1].tolist() == expected.tolist()
    assert found == selected.size


# Few distinct values, so that ties and zeros are the rule.
tied = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 1e-45, -3e38])
entries = st.one_of(tied, st.floats(allow_nan=False, allow_infinity=False, width=32))


@given(
    tensors=st.lists(st.lists(entries, max_size=30), min_size=1, max_size=5).filter(any),
    fraction=st.one_of(st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0]), st.floats(1e-6, 1)),
)
def test_small_tensors(tensors: list[list[float]], fraction: float) -> None:
    layout = Layout.of((str(t), (len(tensor),)) for t, tensor in enumerate(tensors))
    assert_largest(np.array([x for tensor in tensors for x in tensor], np.float32), layout, fraction)


def test_at_least_one_of_each_tensor() -> None:
    layout = Layout.of([("a", (3,)), ("none", (0,)), ("zeros", (4,)), ("scalar", ())])
    gradient = np.array([1, -5, 2, 0, 0, 0, 0, 0.25], np.float32)
    assert select_largest(gradient, layout, 0.001).tolist() == [1, 3, 7]


def test_the_count_is_the_rounded_fraction_of_each_tensor() -> None:
    layout = Layout.of([("a", (200,)), ("b", (149,)), ("c", (151,))])
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
    assert_largest(gradient, Layout.of([("a", (LARGE - 20_000,)), ("b", (20_000,))]), fraction)


@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 32_769, 300_000])
def test_sizes_around_the_sampled_path(size: int) -> None:
    gradient = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert_largest(gradient, Layout.of([("a", (size,))]), 0.01)


def test_the_gradient_stays_as_it_is() -> None:
    gradient = np.random.default_rng(0).standard_normal(LARGE).astype(np.float32)
    before = gradient.copy()
    select_largest(gradient, Layout.of([("a", (LARGE,))]), 0.01)
    assert gradient.tobytes() == before.tobytes()
