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
from edgeflock.shared.model.layout import Layout, Tensor

shapes = st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=6)


@given(shapes=shapes)
def test_tensors_lie_one_after_the_other(shapes: list[list[int]]) -> None:
    sizes = [prod(shape) for shape in shapes]
    assume(sum(sizes))
    layout = Layout.from_shapes((f"tensor {t}", shape) for t, shape in enumerate(shapes))
    stops = list(accumulate(sizes))
    assert layout.size == sum(sizes)
    assert layout.bounds.tolist() == [0, *stops]
    assert layout.tensors == tuple(
        Tensor(f"tensor {t}", tuple(shape), stop - size, stop)
        for t, (shape, size, stop) in enumerate(zip(shapes, sizes, stops, strict=True))
    )
    assert layout.shapes() == [[f"tensor {t}", shape] for t, shape in enumerate(shapes)]
    assert Layout.from_shapes((str(name), list(shape)) for name, shape in layout.shapes()) == layout  # type: ignore[call-overload]


@given(shapes=shapes, data=st.data())
def test_counts_are_those_of_a_loop(shapes: list[list[int]], data: st.DataObject) -> None:
    assume(any(prod(shape) for shape in shapes))
    layout = Layout.from_shapes((str(t), shape) for t, shape in enumerate(shapes))
    chosen = sorted(data.draw(st.sets(st.integers(0, layout.size - 1))))
    expected = [sum(t.start <= k < t.stop for k in chosen) for t in layout.tensors]
    assert layout.counts(np.array(chosen, np.int64)).tolist() == expected
    assert layout.counts(None).tolist() == [prod(shape) for shape in shapes]


def test_a_tensor_is_a_matrix_of_its_first_dimension() -> None:
    shapes = [(), (5,), (0,), (3, 4), (6, 2, 3, 3), (0, 4), (4, 0)]
    layout = Layout.from_shapes((str(t), shape) for t, shape in enumerate(shapes))
    assert layout.grids.tolist() == [[1, 1], [1, 5], [1, 0], [3, 4], [6, 18], [0, 4], [4, 0]]


def test_a_scalar_has_one_parameter() -> None:
    assert Layout.from_shapes([("scale", ())]).size == 1


def test_the_digest_is_as_documented() -> None:
    """The head of SHA-256 over msgpack: any language can compute it."""
    layout = Layout.from_shapes([("w", (2, 3)), ("b", (2,))])
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
    layout = Layout.from_shapes([("w", (2, 3)), ("b", (2,))])
    assert Layout.from_shapes([("w", [2, 3]), ("b", [2])]).digest == layout.digest
    assert Layout.from_shapes(other).digest != layout.digest


@pytest.mark.parametrize("nothing", [[], [("a", (0,))], [("a", (3, 0, 2)), ("b", (0,))]])
def test_a_model_without_parameters_is_refused(nothing: list[tuple[str, tuple[int, ...]]]) -> None:
    with pytest.raises(ConfigError, match="the model has no parameters"):
        Layout.from_shapes(nothing)


# Running statistics

NORMED = Layout.from_shapes(
    [("w", (2, 3)), ("b", (2,)), ("mean", (2,), True), ("none", (0,), True), ("var", (2,), True)]
)


@given(shapes=shapes, buffers=shapes)
def test_buffers_lie_behind_the_parameters(shapes: list[list[int]], buffers: list[list[int]]) -> None:
    assume(any(prod(shape) for shape in shapes))
    named = [(f"tensor {t}", shape) for t, shape in enumerate(shapes)]
    layout = Layout.from_shapes([*named, *((f"buffer {t}", shape, True) for t, shape in enumerate(buffers))])
    trained = Layout.from_shapes(named)
    assert layout.parameters == trained
    assert layout.buffers == sum(prod(shape) for shape in buffers)
    assert layout.size == trained.size + layout.buffers
    assert layout.tensors[: len(shapes)] == trained.tensors
    assert layout.parameters.bounds.tolist() == layout.bounds[: len(shapes) + 1].tolist()
    assert [tensor.buffer for tensor in layout.tensors] == [False] * len(shapes) + [True] * len(buffers)
    assert Layout.from_shapes(msgpack.unpackb(msgpack.packb(layout.shapes()))) == layout


def test_without_buffers_the_parameters_are_all_there_is() -> None:
    layout = Layout.from_shapes([("w", (2, 3)), ("b", (2,), False)])
    assert layout.parameters is layout
    assert layout.buffers == 0
    assert layout.shapes() == [["w", [2, 3]], ["b", [2]]]


def test_buffers_are_marked_where_layouts_travel() -> None:
    assert NORMED.shapes() == [
        ["w", [2, 3]],
        ["b", [2]],
        ["mean", [2], True],
        ["none", [0], True],
        ["var", [2], True],
    ]
    assert NORMED.digest == sha256(msgpack.packb(NORMED.shapes())).digest()[:16]
    others = [*NORMED.shapes()[:2], ["mean", [2]], ["none", [0]], ["var", [2]]]
    assert Layout.from_shapes(others).digest != NORMED.digest  # type: ignore[arg-type]


def test_a_parameter_behind_a_buffer_is_refused() -> None:
    with pytest.raises(ConfigError, match="parameter b comes after a buffer"):
        Layout.from_shapes([("w", (2,)), ("mean", (2,), True), ("b", (2,))])


@pytest.mark.parametrize("before", [[], [("w", (0,))]])
def test_a_model_of_buffers_only_is_refused(before: list[tuple[str, tuple[int, ...]]]) -> None:
    with pytest.raises(ConfigError, match="the model has no parameters"):
        Layout.from_shapes([*before, ("mean", (3,), True)])
