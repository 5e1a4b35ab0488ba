"""Pools and their gradients are torch's: to the bit where there is nothing to round."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from edgeflock.server.training_graph.operators import pooling
from tests.server.training_graph.operators.running import BATCHES, assert_close, normal, run, session

Pair = tuple[int, int]
Max = tuple[Pair, Pair, Pair, Pair, Pair, bool]
"""Size of the image, kernel, stride, padding, dilation, ceil mode."""

MAX_POOLS: dict[str, Max] = {
    "two by two": ((8, 6), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "two by two, odd": ((7, 9), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "two by two, odd one way": ((6, 9), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "two by two, no more than that": ((2, 3), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "two by two, ceil": ((7, 9), (2, 2), (2, 2), (0, 0), (1, 1), True),
    "overlapping": ((9, 8), (3, 3), (2, 2), (0, 0), (1, 1), False),
    "overlapping, padded": ((9, 8), (3, 3), (2, 2), (1, 1), (1, 1), False),
    "every pixel": ((6, 5), (3, 3), (1, 1), (1, 1), (1, 1), False),
    "padded, ceil": ((10, 11), (3, 3), (2, 2), (1, 1), (1, 1), True),
    "stride beyond the kernel": ((11, 10), (2, 2), (3, 4), (0, 0), (1, 1), False),
    "dilated": ((11, 12), (3, 2), (2, 1), (1, 1), (2, 3), False),
    "dilated, ceil": ((11, 12), (3, 2), (2, 3), (1, 1), (2, 3), True),
    "one dimension": ((1, 13), (1, 3), (1, 2), (0, 1), (1, 1), False),
    "a window that begins in the padding": ((5, 5), (2, 2), (3, 3), (1, 1), (1, 1), True),
}


def max_pool(pool: Max) -> tuple[onnxruntime.InferenceSession, tuple[int, int]]:
    (height, width), kernel, stride, padding, dilation, ceil = pool
    rows, columns = functional.max_pool2d(
        torch.zeros(1, 1, height, width), kernel, stride, padding, dilation, ceil
    ).shape[2:]
    graph = session(
        lambda g, x: (
            pooling.max_pool(x, kernel, stride, padding, dilation, ceil)[0],
            pooling.max_pool_backward(g, x, kernel, stride, padding, dilation, ceil, None),
        ),
        {"g": (None, 3, rows, columns), "x": (None, 3, height, width)},
    )
    return graph, (rows, columns)


def check_max(pool: Max, batches: tuple[int, ...]) -> None:
    (height, width), kernel, stride, padding, dilation, ceil = pool
    graph, (rows, columns) = max_pool(pool)
    for batch in batches:
        # Few different values, so that maxima tie; whole ones, so that sums of gradients are exact.
        x = normal(batch, 3, height, width).round().float().requires_grad_()
        g = (8 * normal(batch, 3, rows, columns, seed=1)).round().float()
        y = functional.max_pool2d(x, kernel, stride, padding, dilation, ceil)
        (wanted,) = torch.autograd.grad(y, x, g)
        found, slope = run(graph, g, x)
        assert np.array_equal(found, y.detach().numpy()), (batch, pool)
        assert np.array_equal(slope, wanted.numpy()), (batch, pool)


@pytest.mark.parametrize("pool", MAX_POOLS.values(), ids=MAX_POOLS.keys())
def test_a_maximum_gets_the_gradient_and_of_several_the_first(pool: Max) -> None:
    check_max(pool, BATCHES)


def pairs(low: int, high: int) -> st.SearchStrategy[Pair]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@pytest.mark.slow
@settings(max_examples=60)
@given(data=st.data())
def test_however_the_window_moves(data: st.DataObject) -> None:
    kernel, stride, dilation = (data.draw(pairs(1, 4)) for _ in range(3))
    first, second = (data.draw(st.integers(0, size // 2)) for size in kernel)
    spread = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    height, width = (max(1, s + more) for s, more in zip(spread, data.draw(pairs(0, 8)), strict=True))
    ceil = data.draw(st.booleans())
    check_max(((height, width), kernel, stride, (first, second), dilation, ceil), (1, 3))


def test_a_maximum_of_nothing_but_negatives() -> None:
    """Padding is no maximum."""
    graph, _ = max_pool(((4, 4), (3, 3), (2, 2), (1, 1), (1, 1), False))
    x, g = -torch.ones(1, 3, 4, 4) - torch.arange(16).view(4, 4), torch.ones(1, 3, 2, 2)
    y, slope = run(graph, g, x)
    assert y[0, 0].tolist() == [[-1, -2], [-5, -6]]
    assert slope[0, 0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0] * 4, [0] * 4]


Average = tuple[Pair, Pair, Pair, Pair, bool, bool, int | None]
"""Size of the image, kernel, stride, padding, ceil mode, whether padding counts, divisor."""

AVERAGES: dict[str, Average] = {
    "two by two": ((8, 6), (2, 2), (2, 2), (0, 0), False, True, None),
    "odd": ((7, 9), (2, 2), (2, 2), (0, 0), False, True, None),
    "overlapping": ((9, 8), (3, 2), (2, 1), (0, 0), False, True, None),
    "padded": ((9, 8), (3, 3), (2, 2), (1, 1), False, True, None),
    "padding does not count": ((9, 8), (3, 3), (2, 2), (1, 1), False, False, None),
    "ceil": ((10, 9), (3, 3), (2, 2), (1, 1), True, True, None),
    "ceil, padding does not count": ((10, 9), (3, 3), (2, 2), (1, 1), True, False, None),
    "a divisor": ((9, 8), (3, 3), (2, 2), (1, 1), False, True, 5),
    "stride beyond the kernel": ((11, 10), (2, 2), (3, 4), (0, 0), False, True, None),
    "one dimension": ((1, 12), (1, 4), (1, 2), (0, 1), False, True, None),
}


@pytest.mark.parametrize("pool", AVERAGES.values(), ids=AVERAGES.keys())
def test_an_average_shares_its_gradient_out(pool: Average) -> None:
    (height, width), kernel, stride, padding, ceil, counted, divisor = pool

    def average(x: Tensor) -> Tensor:
        return functional.avg_pool2d(x, kernel, stride, padding, ceil, counted, divisor)

    rows, columns = average(torch.zeros(1, 1, height, width)).shape[2:]
    graph = session(
        lambda g, x: pooling.avg_pool_backward(g, x, kernel, stride, padding, ceil, counted, divisor),
        {"g": (None, 3, rows, columns), "x": (None, 3, height, width)},
    )
    for batch in BATCHES:
        x, g = normal(batch, 3, height, width).requires_grad_(), normal(batch, 3, rows, columns, seed=1)
        (wanted,) = torch.autograd.grad(average(x), x, g)
        given = [g] if len(graph.get_inputs()) == 1 else [g, x]
        assert_close(run(graph, *given)[0], wanted, (batch, pool))


@pytest.mark.parametrize(
    ("size", "out"),
    [((8, 8), (1, 1)), ((7, 9), (3, 2)), ((5, 5), (5, 5)), ((3, 4), (5, 6)), ((1, 13), (1, 4))],
)
def test_adaptive_averages(size: Pair, out: Pair) -> None:
    graph = session(pooling.adaptive_avg_pool_backward, {"g": (None, 3, *out), "x": (None, 3, *size)})
    for batch in BATCHES:
        x, g = normal(batch, 3, *size).requires_grad_(), normal(batch, 3, *out, seed=1)
        (wanted,) = torch.autograd.grad(functional.adaptive_avg_pool2d(x, out), x, g)
        assert_close(run(graph, g, x)[0], wanted, (batch, size, out))


# Three dimensions

SOLID = (5, 6, 7)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "ceil"),
    [
        ([2, 2, 2], [], [0], [1], False),
        ([1, 2, 3], [1, 2, 2], [0, 1, 1], [1, 1, 1], False),
        ([2, 3, 2], [2, 2, 3], [1, 1, 0], [2, 1, 1], True),
    ],
)
def test_a_maximum_of_a_solid_gets_the_gradient(
    kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> None:
    """torch may give one number for all axes, and no stride where it is the kernel's."""
    how = kernel, stride, padding, dilation, ceil

    def pool(x: Tensor) -> Tensor:
        y: Tensor = torch.ops.aten.max_pool3d_with_indices(x, *how)[0]
        return y

    outs = pool(torch.zeros(1, 1, *SOLID)).shape[2:]
    graph = session(
        lambda g, x: (pooling.max_pool(x, *how)[0], pooling.max_pool_backward(g, x, *how, None)),
        {"g": (None, 3, *outs), "x": (None, 3, *SOLID)},
    )
    for batch in (1, 4):
        x = normal(batch, 3, *SOLID).round().float().requires_grad_()
        g = (8 * normal(batch, 3, *outs, seed=1)).round().float()
        y = pool(x)
        (wanted,) = torch.autograd.grad(y, x, g)
        found, slope = run(graph, g, x)
        assert np.array_equal(found, y.detach().numpy())
        assert np.array_equal(slope, wanted.numpy())


def solid_averages() -> dict[str, tuple[Callable[[Tensor], Tensor], Callable[..., Any]]]:
    def average(x: Tensor) -> Tensor:
        return functional.avg_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), True, False)

    def average_back(g: Any, x: Any) -> Any:
        return pooling.avg_pool_backward(g, x, [2, 3, 2], [1, 2, 2], [1, 1, 0], True, False, None)

    return {
        "average": (average, average_back),
        "adaptive average": (
            lambda x: functional.adaptive_avg_pool3d(x, (2, 3, 9)),
            pooling.adaptive_avg_pool_backward,
        ),
    }


@pytest.mark.parametrize("name", solid_averages())
def test_what_is_linear_in_a_solid_gives_its_gradient_back(name: str) -> None:
    forward, backward = solid_averages()[name]
    outs = forward(torch.zeros(1, 1, *SOLID)).shape[2:]
    graph = session(backward, {"g": (None, 3, *outs), "x": (None, 3, *SOLID)})
    for batch in (1, 4):
        x, g = normal(batch, 3, *SOLID).requires_grad_(), normal(batch, 3, *outs, seed=1)
        (wanted,) = torch.autograd.grad(forward(x), x, g)
        given = [g] if len(graph.get_inputs()) == 1 else [g, x]
        assert_close(run(graph, *given)[0], wanted, batch)


def test_an_adaptive_average_of_a_solid() -> None:
    graph = session(lambda x: pooling.adaptive_avg_pool(x, (2, 3, 9)), {"x": (None, 3, *SOLID)})
    x = normal(2, 3, *SOLID)
    assert_close(run(graph, x)[0], functional.adaptive_avg_pool3d(x, (2, 3, 9)))
