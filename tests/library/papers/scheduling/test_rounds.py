"""Rounds that are decided on the way, by the server's own scheduler."""

import numpy as np
import pytest

from edgeflock.papers.scheduling.completion import SCENARIOS, Scenario, completion, lower_bound
from edgeflock.papers.scheduling.experiments import columns, oracle_seconds, play, times_of
from edgeflock.papers.scheduling.matrices import cyclic, staircase

EVERYWHERE = [[(worker + step) % 10 for step in range(10)] for worker in range(10)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
@pytest.mark.parametrize("r", [3, 5, 10])
def test_speeds_that_stay_are_known_after_a_round(scenario: Scenario, r: int) -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        times = np.repeat(scenario.draw(random).draw(1, random), 4, axis=0)
        seconds = play(EVERYWHERE, times, r, 10)
        assert seconds[1:] == pytest.approx(lower_bound(times, r, 10)[1:])


def test_no_order_beats_who_knows_all() -> None:
    random = np.random.default_rng(1)
    times = SCENARIOS[1].draw(random).draw(30, random)
    holds = columns(cyclic(10, 3))
    seconds = play(holds, times, 3, 8)
    best = np.array([oracle_seconds(holds, paces, 3, 8) for paces in times])
    assert (seconds >= best - 1e-9).all()
    assert (best >= lower_bound(times, 3, 8) - 1e-9).all()


def test_where_speeds_change_it_takes_less_than_the_matrices() -> None:
    random = np.random.default_rng(3)
    times = times_of("changing", SCENARIOS[0].draw(random), 60, random)
    for r in (3, 10):
        adaptive = play(EVERYWHERE, times, r, 10).mean()
        assert adaptive < 0.9 * completion(staircase(10, r), times, 10).mean()
        assert adaptive < 0.9 * completion(cyclic(10, r), times, 10).mean()
