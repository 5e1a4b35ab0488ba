"""The range test on losses whose largest rate is known: of h theta^2 / 2 it is 2 / h."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Shuffled
from edgeflock.projects.range_test import STEPS, RangeTest, constant_loss, range_test
from edgeflock.server.descent import Regime
from edgeflock.server.engine.welcome import welcome
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import Config, parse

THETA = np.full(4, 3, np.float32)


class Quadratic:
    """h (theta - noise)^2 / 2."""

    layout = Layout.from_shapes([("w", (4,), False)])

    def __init__(self, curvature: float) -> None:
        self.curvature = np.float32(curvature)

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        assert isinstance(x, np.ndarray)
        away = theta - x.mean(axis=0)
        return Gradient(self.loss(theta), self.curvature * away, np.zeros(0, np.float32), None)

    def loss(self, theta: NDArray[np.float32]) -> float:
        with np.errstate(over="ignore"):
            return float(self.curvature * np.dot(theta, theta) / 2)


def ramp(curvature: float, *settings: str, step: float = 0.0) -> RangeTest:
    """`step` are the seconds that a gradient and a probe take, by the clock."""
    config: Config = parse(overrides=("local.optimizer=sgd", *settings))
    backend = Quadratic(curvature)
    data = Dataset(
        np.random.default_rng(1).normal(0, 0.1, (50, 4)).astype(np.float32), np.zeros(50, np.int64)
    )
    ticks = iter(np.arange(10_000) * step)
    return range_test(
        backend,
        Shuffled(data, np.random.default_rng(0)),
        welcome("check", config, backend.layout),
        Regime.from_config(config),
        THETA,
        backend.loss,
        "coordination.learning_rate",
        clock=lambda: float(next(ticks)),
    )


@pytest.mark.parametrize("curvature", [1e6, 1e3, 10, 1])
def test_the_rate_is_below_what_the_curvature_allows(curvature: float) -> None:
    found = ramp(curvature)
    assert found.rises is not None
    assert found.proposed is not None
    assert 2 / curvature <= found.rises <= 8 / curvature
    assert 0.1 / curvature < found.proposed < 2 / curvature
    assert found == ramp(curvature)
    assert THETA.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("settings", [(), ("optimizer.kind=adam",), ("local.optimizer=adafactor",)])
def test_a_rate_that_is_proposed_trains(settings: tuple[str, ...]) -> None:
    found = ramp(5, *settings)
    assert found.proposed is not None
    assert found.least < found.first / 2
    again = ramp(5, *settings, f"coordination.learning_rate={found.proposed}")
    assert again.advice == ""


def test_a_rate_beyond_is_told() -> None:
    found = ramp(10, "coordination.learning_rate=5")
    assert "coordination.learning_rate = 5 is beyond" in found.advice
    assert f"set {found.proposed:g}" in found.advice


def test_a_loss_that_does_not_fall_is_told() -> None:
    found = ramp(0)
    assert found.proposed is None
    assert "the loss falls at no learning rate: data or targets are broken" in found.advice
    assert "none is proposed" in str(found)


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, STEPS), (0.05, STEPS // 2), (60, STEPS // 8)])
def test_a_slow_model_takes_fewer_steps(seconds: float, steps: int) -> None:
    assert ramp(1, step=seconds).steps == steps


def test_the_loss_of_a_constant_answer() -> None:
    assert constant_loss("cross_entropy", np.array([0, 1, 0, 1])) == pytest.approx(np.log(2))
    assert constant_loss("mse", np.array([1.0, 3.0], np.float32)) == pytest.approx(1)
    assert constant_loss("own.module:loss", np.array([1.0])) is None
