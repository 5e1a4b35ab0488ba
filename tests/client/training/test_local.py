"""A device's own steps, whichever optimizer they are of: against torch, and by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.training.local_optimizer import LocalOptimizer
from edgeflock.client.training.terms import layout_of
from edgeflock.shared.errors import ServerAtFault
from tests.client.training.fakes import WELCOME

SIZE, RATE = 12, np.float32(0.05)
CENTRE: NDArray[np.float32] = np.random.default_rng(2).standard_normal(SIZE).astype(np.float32)


def gradient(theta: NDArray[np.float32]) -> NDArray[np.float32]:
    slope: NDArray[np.float32] = np.tanh(theta - CENTRE)
    return slope * np.linspace(0.1, 3, SIZE, dtype=np.float32)


def steps(count: int, **terms: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(The parameters after so many steps from 1, what the update says.)"""
    theta = np.ones(SIZE, np.float32)
    start = theta.copy()
    local, total = LocalOptimizer(start, replace(WELCOME, **terms)), np.zeros(SIZE, np.float32)
    for _ in range(count):
        direction = local.direction(theta, gradient(theta))
        theta -= RATE * direction
        total += direction
    assert start.tolist() == [1] * SIZE
    return theta, total


@pytest.mark.parametrize("kind", ["sgd", "nesterov", "adam"])
def test_they_are_as_torch_has_them(kind: str) -> None:
    torch = pytest.importorskip("torch")
    there = torch.nn.Parameter(torch.ones(SIZE))
    optimizer = {
        "sgd": lambda: torch.optim.SGD([there], lr=0.05),
        "nesterov": lambda: torch.optim.SGD([there], lr=0.05, momentum=0.9, nesterov=True),
        "adam": lambda: torch.optim.Adam([there], lr=0.05),
    }[kind]()
    for _ in range(20):
        there.grad = torch.from_numpy(gradient(there.detach().numpy()))
        optimizer.step()
    terms: dict[str, dict[str, Any]] = {"sgd": {}, "nesterov": {"momentum": 0.9}, "adam": {"adam": True}}
    theta, total = steps(20, **terms[kind])
    np.testing.assert_allclose(theta, there.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(1 - RATE * total, theta, rtol=1e-4, atol=1e-5)


def test_fedprox_draws_back_to_where_they_set_out_from() -> None:
    free, _ = steps(200)
    drawn, _ = steps(200, proximal=1.0)
    assert np.abs(drawn - 1).sum() < 0.8 * np.abs(free - 1).sum()
    np.testing.assert_allclose(gradient(drawn) + (drawn - 1), 0, atol=1e-3)  # its minimum
    assert steps(1, proximal=1.0)[1].tobytes() == steps(1)[1].tobytes()


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_welcome_that_cannot_be_is_not_believed(value: float) -> None:
    with pytest.raises(ServerAtFault, match="proximal"):
        layout_of(replace(WELCOME, proximal=value), 1 << 30)
