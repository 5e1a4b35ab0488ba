"""How a fleet returns, with the clients' own back-off."""

from random import Random

import numpy as np
import pytest

from edgeflock.devices.capacity import simulate_storm
from edgeflock.devices.capacity.storm import first_attempts
from edgeflock.shared.protocol.backoff import back_off


def one(outage: float, seed: int) -> float:
    """When a client asks that retries as client/transport/retrying.py does."""
    now = 0.0
    for wait in back_off(Random(seed)):
        now += wait
        if now >= outage:
            break
    return now


def test_many_ask_when_single_clients_do() -> None:
    many, single = first_attempts(4000, 40.0, 1), np.sort([one(40.0, seed) for seed in range(4000)])
    assert np.quantile(many, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(single, [0.1, 0.5, 0.9]), rel=0.05)
    assert many[0] >= 40
    assert many[-1] <= 70  # a wait is 30 s at most


def test_the_last_one_is_back_when_all_have_had_their_turn() -> None:
    quick, slow = simulate_storm(500, 60.0, 1e-6, seed=3), simulate_storm(500, 60.0, 1.0, seed=3)
    assert quick.last_seconds <= 30.01
    assert quick.longest_queue <= 2
    assert 500 <= slow.last_seconds <= 502
    assert 249 <= slow.half_seconds <= 252
    assert (slow.leader_seconds, slow.gateway_seconds) == (500, 0)
    assert slow.longest_queue > 400
    assert simulate_storm(500, 60.0, 1.0, seed=3) == slow


def test_who_asks_one_by_one_in_words_and_in_arrays() -> None:
    storm, free, back, queue = simulate_storm(300, 5.0, 0.02, seed=7), 0.0, [], []
    asked = (first_attempts(300, 5.0, 7) - 5.0).tolist()
    for at in asked:
        free = max(free, at) + 0.02
        back.append(free)
    queue = [sum(one <= done for one in asked) - number for number, done in enumerate(back)]
    assert storm.last_seconds == pytest.approx(back[-1])
    assert storm.half_seconds == pytest.approx(back[149])
    assert storm.longest_queue == max(queue)


def test_gateways_take_their_turns_beside_each_other() -> None:
    alone = simulate_storm(4000, 60.0, 0.02, seed=5)
    through = simulate_storm(4000, 60.0, 1e-4, gateways=4, gateway_s=0.02, seed=5)
    assert 19 <= through.last_seconds < 0.5 * alone.last_seconds
    assert through.longest_queue < alone.longest_queue
    assert through.gateway_seconds == pytest.approx(80)
    one = simulate_storm(4000, 60.0, 1e-9, gateways=1, gateway_s=0.02, seed=5)
    assert one.last_seconds == pytest.approx(alone.last_seconds)


def test_behind_gateways_the_server_takes_one_after_another() -> None:
    storm = simulate_storm(500, 60.0, 1.0, gateways=8, gateway_s=0.01, seed=3)
    assert 500 <= storm.last_seconds <= 502
