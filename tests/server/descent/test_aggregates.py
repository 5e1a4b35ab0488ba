"""How the updates of a round come together."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.descent import AGGREGATES, Gathered, Step
from edgeflock.server.descent.aggregates import median
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import parse

SIZE = 4


def step(entries: dict[int, float], samples: int = 1) -> Step:
    where = np.array(sorted(entries), np.int64)
    return Step(0, where, np.array([entries[k] for k in where.tolist()], np.float32), samples=samples)


def dense(*values: float) -> Step:
    return Step(0, slice(None), np.array(values, np.float32))


def test_the_median_is_of_those_that_sent_an_entry_by_their_part() -> None:
    steps = [step({0: 1, 1: 2}), step({0: 5}), step({0: -100, 2: 8}), step({1: 4})]
    assert median(steps, SIZE).tolist() == [1 * 3 / 4, 3 * 2 / 4, 8 / 4, 0]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_few_that_are_alike_it_is_what_they_say(count: int) -> None:
    assert median([dense(1, -2, 3, 0)] * count, SIZE).tolist() == pytest.approx([1, -2, 3, 0])


def test_two_of_seven_cannot_take_it_far() -> None:
    random = np.random.default_rng(0)
    steps = [dense(*random.normal(1, 0.1, SIZE)) for _ in range(5)] + [dense(*[-1e30] * SIZE)] * 2
    assert np.abs(median(steps, SIZE) - 1).max() < 0.5


def test_a_round_is_what_its_aggregate_says_times_its_samples() -> None:
    layout = Layout.from_shapes([("kernel", (SIZE,))])
    steps = [step({0: 1}, 2), step({0: 3}, 4), step({0: 1000}, 10)]

    def total(name: str) -> NDArray[np.float32]:
        gathered = Gathered(layout, name)
        for one in steps:
            gathered.add(one)
        assert (gathered.steps, gathered.samples) == (3, 16)
        return gathered.total

    assert total("mean").tolist() == [2 + 12 + 10_000, 0, 0, 0]
    assert total("median").tolist() == [16 * 3, 0, 0, 0]


def test_what_a_defence_let_nothing_of_count_is_of_no_samples() -> None:
    gathered = Gathered(Layout.from_shapes([("kernel", (SIZE,))]), "median")
    gathered.add(step({0: 1}, 9).scaled(0.0))
    assert (gathered.steps, gathered.samples) == (1, 0)
    assert not gathered.total.any()


def test_only_rounds_have_one() -> None:
    assert list(AGGREGATES) == ["mean", "median"]
    with pytest.raises(ConfigError, match="it compares the updates of a round; set coordination.mode"):
        parse(overrides=["coordination.aggregate=median"])
    assert parse(overrides=["coordination.mode=rounds", "coordination.aggregate=median"])
