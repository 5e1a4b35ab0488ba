"""The gradient of every kind of convolution is autograd's, to the bit: of whole numbers no sum is rounded."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from edgeflock.server.training_graph.operators.convolution import convolution_backward
from tests.server.training_graph.operators.running import BATCHES, normal, run, session


@dataclass(frozen=True, slots=True)
class Case:
    """Channels into and out of a convolution of some size, and how its kernel moves."""

    channels: int
    made: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.convolution(
            x,
            weight,
            bias,
            self.stride,
            self.padding,
            self.dilation,
            self.transposed,
            self.output_padding or (0,) * len(self.size),
            self.groups,
        )

    @property
    def weight(self) -> tuple[int, ...]:
        first, second = (self.channels, self.made) if self.transposed else (self.made, self.channels)
        return first, second // self.groups, *self.kernel


def whole(*shape: int, seed: int = 0) -> Tensor:
    return (2 * normal(*shape, seed=seed)).round()


def check(case: Case, batches: tuple[int, ...]) -> None:
    weight = whole(*case.weight, seed=1).requires_grad_()
    bias = whole(case.made).requires_grad_()
    result = case(whole(1, case.channels, *case.size), weight, bias).shape[1:]
    graph = session(
        lambda g, x, w: convolution_backward(
            g,
            x,
            w,
            [case.made],
            case.stride,
            case.padding,
            case.dilation,
            case.transposed,
            case.output_padding or (0,) * len(case.size),
            case.groups,
            (True, True, True),
        ),
        {"g": (None, *result), "x": (None, case.channels, *case.size), "w": case.weight},
    )
    for batch in batches:
        x = whole(batch, case.channels, *case.size, seed=2).requires_grad_()
        g = whole(batch, *result, seed=3)
        wanted = torch.autograd.grad(case(x, weight, bias), (x, weight, bias), g)
        for name, found, exact in zip(("dx", "dw", "db"), run(graph, g, x, weight), wanted, strict=True):
            assert np.array_equal(found, exact.numpy()), (name, batch, case)


ONE, NONE = (1, 1), (0, 0)

KINDS = {
    "plain": Case(5, 6, (9, 11), (3, 3), ONE, NONE, ONE),
    "same": Case(5, 6, (9, 11), (3, 3), ONE, ONE, ONE),
    "wide": Case(5, 6, (32, 32), (3, 3), ONE, ONE, ONE),
    "few channels": Case(3, 6, (9, 11), (7, 7), (2, 2), (2, 2), ONE),
    "one channel": Case(1, 4, (8, 8), (3, 3), ONE, ONE, ONE),
    "few channels, dilated": Case(2, 4, (9, 8), (3, 2), ONE, (2, 1), (2, 3)),
    "padded beyond the edge": Case(5, 6, (9, 11), (3, 3), ONE, (2, 2), ONE),
    "padded by more than the kernel": Case(5, 6, (4, 3), (2, 2), ONE, (3, 4), ONE),
    "five by five": Case(6, 16, (16, 16), (5, 5), ONE, NONE, ONE),
    "even": Case(8, 6, (9, 10), (2, 4), ONE, ONE, ONE),
    "dilated": Case(5, 6, (9, 11), (3, 3), ONE, (2, 2), (2, 2)),
    "stride": Case(5, 6, (9, 11), (3, 3), (2, 2), ONE, ONE),
    "stride, with a rest": Case(8, 6, (10, 12), (3, 3), (3, 3), ONE, ONE),
    "stride beyond the kernel": Case(8, 6, (11, 13), (2, 2), (3, 4), NONE, ONE),
    "stride, dilated": Case(8, 6, (15, 17), (5, 5), (2, 2), (2, 2), (2, 2)),
    "another each way": Case(8, 6, (15, 17), (3, 5), (1, 2), (1, 0), (1, 2)),
    "the whole input": Case(5, 7, (6, 5), (6, 5), ONE, NONE, ONE),
    "a pixel": Case(5, 6, (9, 11), ONE, ONE, NONE, ONE),
    "a pixel, stride": Case(5, 6, (9, 11), ONE, (2, 2), NONE, ONE),
    "a pixel, padded": Case(5, 6, (9, 11), ONE, ONE, ONE, ONE),
    "a pixel, groups": Case(8, 12, (8, 8), ONE, ONE, NONE, ONE, 2),
    "groups": Case(8, 12, (9, 11), (3, 3), ONE, (2, 2), (2, 2), 4),
    "groups, stride": Case(8, 12, (8, 8), (5, 5), (2, 2), (2, 2), ONE, 2),
    "depthwise": Case(8, 8, (9, 11), (3, 3), ONE, ONE, ONE, 8),
    "depthwise, two each, stride": Case(8, 16, (9, 11), (3, 3), (2, 2), ONE, ONE, 8),
    "one dimension": Case(5, 6, (13,), (3,), (1,), (1,), (1,)),
    "one dimension, few channels, stride": Case(2, 6, (13,), (4,), (2,), (1,), (1,)),
    "one dimension, dilated, groups": Case(6, 6, (20,), (3,), (2,), (4,), (4,), 3),
    "one dimension, a pixel": Case(6, 5, (7,), (1,), (1,), (0,), (1,)),
    "transposed": Case(5, 6, (5, 6), (3, 3), ONE, NONE, ONE, 1, True),
    "transposed, stride": Case(6, 5, (5, 6), (3, 3), (2, 2), ONE, ONE, 1, True, ONE),
    "transposed, groups": Case(6, 4, (5, 6), (3, 2), (2, 3), ONE, ONE, 2, True, (0, 1)),
    "transposed, dilated": Case(6, 5, (5, 6), (3, 3), ONE, ONE, (2, 1), 1, True),
    "transposed, one dimension": Case(6, 3, (9,), (4,), (2,), (1,), (1,), 3, True),
    "a volume": Case(3, 4, (5, 6, 4), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "a volume, another each way": Case(2, 3, (7, 6, 9), (3, 1, 2), (2, 1, 3), (1, 0, 2), (2, 1, 1)),
    "a volume, groups": Case(6, 4, (5, 4, 5), (3, 2, 1), (1, 2, 1), (1, 0, 0), (1, 1, 1), 2),
    "a volume, transposed": Case(4, 3, (3, 4, 3), (2, 3, 2), (2, 1, 2), (0, 1, 0), (1, 1, 1), 1, True),
}


@pytest.mark.parametrize("case", KINDS.values(), ids=KINDS.keys())
def test_it_is_autograd_s(case: Case) -> None:
    check(case, BATCHES)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.sampled_from((1, 2, 2)))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, stride, padding, dilation = each(1, 4), each(1, 3), each(0, 3), each(1, 3)
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    channels, made = (groups * draw(st.integers(1, 6 // groups)) for _ in range(2))
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    size = tuple(low + more for low, more in zip(least, each(0, 20), strict=True))
    if draw(st.booleans()):
        return Case(channels, made, size, kernel, stride, padding, dilation, groups)
    size = tuple(2 * p + 1 + n % 4 for p, n in zip(padding, size, strict=True))  # some pixels must come out
    extra = tuple(draw(st.integers(0, s - 1)) for s in stride)
    return Case(channels, made, size, kernel, stride, padding, dilation, groups, True, extra)


@pytest.mark.slow
@settings(max_examples=60)
@given(case=cases())
def test_however_the_kernel_moves(case: Case) -> None:
    check(case, (1, 3))


def test_only_what_is_wanted_is_computed() -> None:
    """A first layer needs no gradient of its input: no transposed convolution is left in the graph."""
    graph = session(
        lambda g, x, w: convolution_backward(
            g, x, w, None, [1], [0], [1], False, [0], 1, (False, True, False)
        )[1],
        {"g": (None, 6, 7, 8), "x": (None, 5, 9, 10), "w": (6, 5, 3, 3)},
    )
    assert [entry.name for entry in graph.get_inputs()] == ["g", "x", "w"]
    g, x, w = whole(2, 6, 7, 8), whole(2, 5, 9, 10), whole(6, 5, 3, 3).requires_grad_()
    (wanted,) = torch.autograd.grad(functional.conv2d(x, w), w, g)
    assert np.array_equal(run(graph, g, x, w)[0], wanted.numpy())
