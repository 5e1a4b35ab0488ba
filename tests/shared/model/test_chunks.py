"""Models cut into chunks, and when each is exchanged."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.model.chunks import chunks, phase
from edgeflock.shared.model.layout import Layout

LAYOUT = Layout.from_shapes(
    [
        ("a.weight", (5, 4)),
        ("a.bias", (3,)),
        ("nothing", (0,)),
        ("b", (7,)),
        ("c.d.weight", (2,)),
        ("m", (4,), True),
    ]
)
SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any)


def test_layers_are_cut_and_a_chunk_ends_with_its_layer() -> None:
    cut = chunks(LAYOUT, 10)
    assert [(chunk.start, chunk.stop) for chunk in cut] == [(0, 10), (10, 20), (20, 23), (23, 30), (30, 32)]
    assert [chunk.layout.shapes() for chunk in cut[2:4]] == [[["a.bias", [3]]], [["b", [7]]]]


def test_a_chunk_has_the_parts_of_tensors_that_lie_in_it() -> None:
    assert [list(chunk.layout.shapes()) for chunk in chunks(LAYOUT, 22)][:2] == [
        [["a.weight", [20]], ["a.bias", [2]]],
        [["a.bias", [1]]],
    ]


def test_without_a_size_all_is_one_chunk() -> None:
    (whole,) = chunks(LAYOUT, 0)
    assert (whole.start, whole.stop, whole.layout) == (0, 32, LAYOUT.parameters)


@given(SIZES, st.integers(0, 40))
def test_every_parameter_is_in_one_chunk(sizes: list[int], size: int) -> None:
    layout = Layout.from_shapes([(f"layer{number}.weight", (n,)) for number, n in enumerate(sizes)])
    cut = chunks(layout, size)
    assert np.concatenate([np.arange(c.start, c.stop) for c in cut]).tolist() == list(range(layout.size))
    assert all(chunk.layout.size == chunk.stop - chunk.start for chunk in cut)
    assert not size or all(chunk.layout.size <= size for chunk in cut)


@given(st.integers(1, 100), st.integers(1, 40))
def test_exchanges_are_spread_over_the_period(count: int, period: int) -> None:
    phases = Counter(phase(number, count, period) for number in range(count))
    assert all(0 <= step < period for step in phases)
    assert max(phases.values()) <= -(-count // period)
