"""Samples that a device holds out of its own data, to evaluate the model on."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.data.own_test import OwnTest, divide
from edgeflock.shared.data.datasets import Dataset
from tests.client.training.fakes import WELCOME
from tests.client.training.test_personal import Slope, data

EVALUATING = replace(WELCOME, evaluate=1)


@pytest.mark.parametrize(("count", "part", "held"), [(100, 0.1, 10), (10, 0.1, 1), (9, 0.1, 0), (4, 0.9, 3)])
def test_a_part_is_held_out_the_same_each_time(count: int, part: float, held: int) -> None:
    trained, test = divide(count, part)
    assert len(test) == held
    assert sorted([*trained, *test]) == list(range(count))
    assert all((one == other).all() for one, other in zip(divide(count, part), (trained, test), strict=True))


def taken(batches: Shuffled) -> set[int]:
    return {int(y) for _ in range(100) for y in batches.take(7)[1]}


def test_held_out_samples_are_not_trained_on() -> None:
    batches = Shuffled(data(40), np.random.default_rng(0), hold_out=0.25)
    batches.begin(EVALUATING, Slope())
    assert batches.own_test is not None
    held = set(batches.own_test.places.tolist())
    assert len(held) == 10
    assert taken(batches) == set(range(40)) - held
    batches.begin(EVALUATING, Slope())  # a rejoin holds out no more
    assert set(batches.own_test.places.tolist()) == held


@pytest.mark.parametrize(("evaluate", "part"), [(0, 0.25), (1, 0.0)])
def test_all_are_trained_on_if_nobody_asks(evaluate: int, part: float) -> None:
    batches = Shuffled(data(40), np.random.default_rng(0), hold_out=part)
    batches.begin(replace(WELCOME, evaluate=evaluate), Slope())
    batches.evaluate(np.zeros(5, np.float32))
    assert batches.own_test is None
    assert batches.telemetry() == {}
    assert taken(batches) == set(range(40))


class Counting(Slope):
    """The loss of a batch is its mean label, and its accuracy the part of even ones."""

    def evaluate(
        self, theta: NDArray[np.float32], x: object, y: NDArray[np.generic]
    ) -> tuple[float, float | None]:
        labels = y.astype(np.float64)
        return float(labels.mean()), float((labels % 2 == 0).mean())


def test_many_samples_are_read_in_batches() -> None:
    places = np.arange(2500)
    test = OwnTest(Dataset(np.zeros((2500, 1), np.float32), np.arange(2500)), places, Counting())
    loss, accuracy = test.evaluate(np.zeros(5, np.float32))
    assert loss == pytest.approx(1249.5)
    assert accuracy == pytest.approx(0.5)
    assert test.facts == {"eval.num-examples": 2500, "eval.loss": loss, "eval.accuracy": accuracy}
