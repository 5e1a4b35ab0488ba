"""Asynchronous mode with a cohort: who trains, who waits, and what becomes of a device that hangs."""

import numpy as np
import pytest

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.descent.step import Step
from edgeflock.shared.settings.coordination import CoordinationSettings
from tests.server.pushes import LAYOUT, dense_update, push


def of(seats: int, devices: int) -> Asynchronous:
    """Of devices 1, 2, .. that have come in this order, and have turns of two updates."""
    made = Asynchronous.from_settings(
        CoordinationSettings(cohort=seats, cohort_rounds=2, deadline=10.0), LAYOUT
    )
    for device in range(1, devices + 1):
        made.add_device(device)
    made.tick(0.0)
    return made


def seated(coordinator: Asynchronous) -> set[int]:
    assert coordinator.turns is not None
    return set(coordinator.turns.members)


def update_of(coordinator: Asynchronous, device: int, now: float) -> None:
    delta = np.ones(LAYOUT.size, np.float32)
    step = Step(0, np.arange(LAYOUT.size), delta)
    assert coordinator.offer(push(device, dense_update(1, 0, delta)), step, now) is not None
    coordinator.tick(now)


def test_a_turn_ends_after_its_updates() -> None:
    three = of(seats=2, devices=3)
    assert seated(three) == {1, 2}
    update_of(three, 1, 1.0)  # the first seat is for one update, so that seats do not change at once
    assert seated(three) == {2, 3}
    update_of(three, 2, 2.0)
    assert seated(three) == {2, 3}
    update_of(three, 2, 3.0)
    assert seated(three) == {3, 1}


def test_an_update_without_a_seat_counts_and_costs_nobody_a_turn() -> None:
    three = of(seats=1, devices=3)
    update_of(three, 3, 1.0)
    assert seated(three) == {1}


def test_who_sends_nothing_loses_its_seat_to_who_waits() -> None:
    three = of(seats=2, devices=3)
    update_of(three, 2, 6.0)
    assert three.due == 10.0
    three.tick(9.9)
    assert seated(three) == {1, 2}
    three.tick(10.0)
    assert seated(three) == {2, 3}
    assert three.due == 16.0


def test_who_returns_has_time_for_its_first_update() -> None:
    one = of(seats=1, devices=1)
    one.remove_device(1)
    one.add_device(1)
    one.add_device(2)
    one.tick(100.0)
    assert seated(one) == {1}
    assert one.due == 110.0


@pytest.mark.parametrize("devices", [1, 2])
def test_nobody_is_hurried_while_nobody_waits(devices: int) -> None:
    few = of(seats=2, devices=devices)
    assert few.due is None
    few.tick(1e6)
    assert seated(few) == set(range(1, devices + 1))
