"""Where tensors lie, and when two ends agree on it."""

from hashlib import sha256
from itertools import accumulate
from math import prod

import msgpack
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout, Tensor

shapes = st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=6)


@given(shapes=shapes)
def test_tensors_lie_one_after_the_other(shapes: list[list[int]]) -> None:
    sizes = [prod(shape) for shape in shapes]
    assume(sum(sizes))
    layout = Layout.of((f"tensor {t}", shape) for t, shape in enumerate(shapes))
    stops = list(accumulate(sizes))
    assert layout.size == sum(sizes)
    assert layout.bounds.tolist() == [0, *stops]
    assert layout.tensors == tuple(
        Tensor(f"tensor {t}", tuple(shape), stop - size, stop)
        for t, (shape, size, stop) in enumerate(zip(shapes, sizes, stops, strict=True))
    )
    assert layout.shapes() == [[f"tensor {t}", shape] for t, shape in enumerate(shapes)]
    assert Layout.of((str(name), list(shape)) for name, shape in layout.shapes()) == layout  # type: ignore[call-overload]


@given(shapes=shapes, data=st.data())
def test_counts_are_those_of_a_loop(shapes: list[list[int]], data: st.DataObject) -> None:
    assume(any(prod(shape) for shape in shapes))
    layout = Layout.of((str(t), shape) for t, shape in enumerate(shapes))
    chosen = sorted(data.draw(st.sets(st.integers(0, layout.size - 1))))
    expected = [sum(t.start <= k < t.stop for k in chosen) for t in layout.tensors]
    assert layout.counts(np.array(chosen, np.int64)).tolist() == expected
    assert layout.counts(None).tolist() == [prod(shape) for shape in shapes]


def test_a_tensor_is_a_matrix_of_its_first_dimension() -> None:
    shapes = [(), (5,), (0,), (3, 4), (6, 2, 3, 3), (0, 4), (4, 0)]
    layout = Layout.of((str(t), shape) for t, shape in enumerate(shapes))
    assert layout.grids.tolist() == [[1, 1], [1, 5], [1, 0], [3, 4], [6, 18], [0, 4], [4, 0]]


def test_a_scalar_has_one_parameter() -> None:
    assert Layout.of([("scale", ())]).size == 1


def test_the_digest_is_as_documented() -> None:
    """The head of SHA-256 over msgpack: any language can compute it."""
    layout = Layout.of([("w", (2, 3)), ("b", (2,))])
    packed = b"\x92\x92\xa1w\x92\x02\x03\x92\xa1b\x91\x02"
    assert msgpack.packb([["w", [2, 3]], ["b", [2]]]) == packed
    assert layout.digest == sha256(packed).digest()[:16]


@pytest.mark.parametrize(
    "other",
    [
        [("w", (3, 2)), ("b", (2,))],
        [("w", (6,)), ("b", (2,))],
        [("v", (2, 3)), ("b", (2,))],
        [("b", (2,)), ("w", (2, 3))],
        [("w", (2, 3)), ("b", (2,)), ("c", (0,))],
    ],
)
def test_another_name_shape_or_order_is_another_layout(other: list[tuple[str, tuple[int, ...]]]) -> None:
    layout = Layout.of([("w", (2, 3)), ("b", (2,))])
    assert Layout.of([("w", [2, 3]), ("b", [2])]).digest == layout.digest
    assert Layout.of(other).digest != layout.digest


@pytest.mark.parametrize("nothing", [[], [("a", (0,))], [("a", (3, 0, 2)), ("b", (0,))]])
def test_a_model_without_parameters_is_refused(nothing: list[tuple[str, tuple[int, ...]]]) -> None:
    with pytest.raises(ConfigError, match="the model has no parameters"):
        Layout.of(nothing)
