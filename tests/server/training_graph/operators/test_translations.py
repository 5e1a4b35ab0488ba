"""Norms, dropout and gradients of selections, each by itself, against autograd in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from edgeflock.server.training_graph.operators import translations
from tests.server.training_graph.operators.running import BATCHES, assert_close, normal, run, session

EPS = 1e-5


def weights(channels: int, affine: bool) -> list[Tensor]:
    """Weight and bias, or neither."""
    return [normal(channels, seed=seed).requires_grad_() for seed in (4, 5)] if affine else []


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 4, 5), (3, 7, 7)], ids=str)
@pytest.mark.parametrize("momentum", [1.0, 0.1])
def test_batch_norm_by_the_batch_s_own_statistics(
    shape: tuple[int, ...], affine: bool, momentum: float
) -> None:
    channels = shape[0]
    learned = weights(channels, affine)
    weight, bias = learned or (None, None)

    def build(g: Any, x: Any, mean: Any, var: Any, *affine: Any) -> tuple[Any, ...]:
        weight, bias = affine or (None, None)
        y, batch_mean, rstd, *moved = translations.batch_norm(x, weight, bias, mean, var, True, momentum, EPS)
        dx, dw, db = translations.batch_norm_backward(
            g, x, weight, mean, var, batch_mean, rstd, True, EPS, (True, True, True)
        )
        return y, *moved, dx, *((dw, db) if affine else ())

    names = ("weight", "bias") if affine else ()
    graph = session(
        build,
        {
            "g": (None, *shape),
            "x": (None, *shape),
            "mean": (channels,),
            "var": (channels,),
            **{name: (channels,) for name in names},
        },
    )
    for batch in (2, 7, 64) if len(shape) == 1 else BATCHES:
        x, g = (3 + 2 * normal(batch, *shape)).requires_grad_(), normal(batch, *shape, seed=1)
        mean, var = normal(channels, seed=2), normal(channels, seed=3).abs()
        moved = mean.clone(), var.clone()
        y = functional.batch_norm(x, *moved, weight, bias, True, momentum, EPS)
        slopes = torch.autograd.grad(y, (x, *learned), g)
        found = run(graph, g, x, mean, var, *learned)
        for number, (got, wanted) in enumerate(zip(found, (y, *moved, *slopes), strict=True)):
            if number == 3 and x.numel() == 2 * channels:
                # Two numbers a channel: the gradient is what is left of larger terms that cancel.
                assert np.abs(got - wanted.numpy()).max() < 1e-5
            else:
                assert_close(got, wanted, (batch, number))


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_by_running_statistics_trains_too(affine: bool) -> None:
    """A layer that is frozen in evaluation mode while the others train."""
    learned = weights(6, affine)
    weight, bias = learned or (None, None)

    def build(g: Any, x: Any, mean: Any, var: Any, *affine: Any) -> tuple[Any, ...]:
        weight, bias = affine or (None, None)
        y, *_ = translations.batch_norm(x, weight, bias, mean, var, False, 0.1, EPS)
        slopes = translations.batch_norm_backward(
            g, x, weight, mean, var, None, None, False, EPS, (True, True, True)
        )
        return y, *(slopes if affine else slopes[:1])

    shapes = {"g": (None, 6, 4, 5), "x": (None, 6, 4, 5), "mean": (6,), "var": (6,)}
    graph = session(build, shapes | ({"weight": (6,), "bias": (6,)} if affine else {}))
    mean, var = normal(6, seed=2), normal(6, seed=3).abs()
    for batch in BATCHES:
        x, g = normal(batch, 6, 4, 5).requires_grad_(), normal(batch, 6, 4, 5, seed=1)
        y = functional.batch_norm(x, mean, var, weight, bias, False, 0.1, EPS)
        slopes = torch.autograd.grad(y, (x, *learned), g)
        given = {"g": g, "x": x, "mean": mean, "var": var} | dict(
            zip(("weight", "bias"), learned, strict=False)
        )
        found = run(graph, *(given[entry.name] for entry in graph.get_inputs()))
        for got, wanted in zip(found, (y, *slopes), strict=True):
            assert_close(got, wanted, batch)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((6, 5, 7), 3), ((6, 5, 7), 1), ((6, 5, 7), 6), ((8, 9), 2), ((12,), 2), ((4, 32, 32), 2)],
)
def test_group_norm(shape: tuple[int, ...], groups: int, affine: bool) -> None:
    channels, pixels = shape[0], int(np.prod(shape[1:]))
    learned = weights(channels, affine)
    weight, bias = learned or (None, None)

    def build(g: Any, x: Any, *affine: Any) -> tuple[Any, ...]:
        weight, bias = affine or (None, None)
        y, mean, rstd = translations.group_norm(x, weight, bias, None, channels, pixels, groups, EPS)
        slopes = translations.group_norm_backward(
            g, x, mean, rstd, weight, None, channels, pixels, groups, (True, True, True)
        )
        return y, *(slopes if affine else slopes[:1])

    names = ("weight", "bias") if affine else ()
    graph = session(
        build, {"g": (None, *shape), "x": (None, *shape), **{name: (channels,) for name in names}}
    )
    for batch in BATCHES:
        x, g = (3 + 2 * normal(batch, *shape)).requires_grad_(), normal(batch, *shape, seed=1)
        y = functional.group_norm(x, groups, weight, bias, EPS)
        slopes = torch.autograd.grad(y, (x, *learned), g)
        for got, wanted in zip(run(graph, g, x, *learned), (y, *slopes), strict=True):
            assert_close(got, wanted, batch)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_keeps_its_share_and_the_mean(share: float) -> None:
    """n = 400,000 draws: the share kept is binomial, and what is kept grows by 1 / (1 - p)."""
    graph = session(lambda x: translations.dropout(x, share, True)[0], {"x": (None, 1000)})
    x = torch.ones(400, 1000)
    (first,), (again,) = run(graph, x), run(graph, x)
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / (1 - share))}
    deviation = (share * (1 - share) / first.size) ** 0.5
    assert abs((first == 0).mean() - share) < 6 * deviation
    both = ((first == 0) & (again == 0)).mean()
    assert abs(both - share**2) < 6 * deviation, "two steps drop the same"
    pairs = ((first[1:] == 0) & (first[:-1] == 0)).mean()
    assert abs(pairs - share**2) < 6 * deviation, "two samples drop the same"


def test_dropout_at_its_ends() -> None:
    x = normal(3, 5).float()
    for share, training, wanted in ((0.0, True, x), (0.7, False, x), (0.7, None, x), (1.0, True, 0 * x)):
        graph = session(lambda v: translations.dropout(v, share, training)[0], {"x": (None, 5)})  # noqa: B023
        assert np.array_equal(run(graph, x)[0], wanted.numpy())


@pytest.mark.parametrize("threshold", [0.0, 0.25, -1.0])
def test_a_gradient_passes_above_the_threshold(threshold: float) -> None:
    """Zero itself does not, nor does the smallest number below; the smallest normal number does."""
    graph = session(
        lambda g, y: translations.relu_backward(g, y, threshold), {"g": (None, 8), "y": (None, 8)}
    )
    y = torch.tensor([[0.0, -0.0, 1e-37, -1e-37, 0.25, 0.2500001, -1.0, 3e38]])
    g = torch.arange(1, 9).float().view(1, 8)
    wanted = torch.where(y > threshold, g, 0.0)
    assert np.array_equal(run(graph, g, y)[0], wanted.numpy())


SELECTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "one": (lambda x: x[:, 2], lambda g: translations.select_backward(g, [None, 7, 5], 1, 2)),
    "the last": (lambda x: x[:, -1], lambda g: translations.select_backward(g, [None, 7, 5], 1, -1)),
    "by a negative axis": (
        lambda x: x[..., 0],
        lambda g: translations.select_backward(g, [None, 7, 5], -1, 0),
    ),
    "from the start": (
        lambda x: x[:, :3],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 0, 3, 1),
    ),
    "to the end": (
        lambda x: x[:, 2:],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 2, 2**63 - 1, 1),
    ),
    "but the last two": (
        lambda x: x[:, :-2],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 0, -2, 1),
    ),
    "the last two": (
        lambda x: x[..., -2:],
        lambda g: translations.slice_backward(g, [None, 7, 5], -1, -2, 2**63 - 1, 1),
    ),
    "every second": (
        lambda x: x[:, ::2],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 0, 2**63 - 1, 2),
    ),
    "every second from the second": (
        lambda x: x[:, 1::2],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 1, 2**63 - 1, 2),
    ),
    "every third up to the sixth": (
        lambda x: x[:, 1:6:3],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 1, 6, 3),
    ),
    "every fourth of the last axis": (
        lambda x: x[:, :, 0::4],
        lambda g: translations.slice_backward(g, [None, 7, 5], 2, 0, 2**63 - 1, 4),
    ),
    "a step beyond the end": (
        lambda x: x[:, 3::9],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 3, 2**63 - 1, 9),
    ),
    "all of the batch": (
        lambda x: x[:],
        lambda g: translations.slice_backward(g, [object(), 7, 5], 0, 0, 2**63 - 1, 1),
    ),
    "more than there is": (
        lambda x: x[:, 4:99],
        lambda g: translations.slice_backward(g, [None, 7, 5], 1, 4, 99, 1),
    ),
}


@pytest.mark.parametrize(("select", "backward"), SELECTIONS.values(), ids=SELECTIONS.keys())
def test_what_was_not_chosen_gets_nothing(
    select: Callable[[Tensor], Tensor], backward: Callable[[Any], Any]
) -> None:
    shape = tuple(select(torch.zeros(2, 7, 5)).shape[1:])
    graph = session(backward, {"g": (None, *shape)})
    for batch in BATCHES:
        x, g = normal(batch, 7, 5).float().requires_grad_(), normal(batch, *shape, seed=1).float()
        (wanted,) = torch.autograd.grad(select(x), x, g)
        assert np.array_equal(run(graph, g)[0], wanted.numpy()), batch


@pytest.mark.parametrize(
    "backward",
    [
        lambda g: translations.select_backward(g, [object(), 5], 0, 1),
        lambda g: translations.slice_backward(g, [object(), 5], 0, 1, 2**63 - 1, 1),
        lambda g: translations.slice_backward(g, [object(), 5], 0, 0, 3, 1),
        lambda g: translations.slice_backward(g, [object(), 5], 0, 0, 2**63 - 1, 2),
    ],
)
def test_a_part_of_the_batch_is_refused(backward: Callable[[Any], Any]) -> None:
    with pytest.raises(NotImplementedError, match="batch cannot train"):
        session(backward, {"g": (None, 5)})
