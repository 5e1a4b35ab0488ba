"""FedCompass against its paper: who arrives together, with how many steps, and what late ones count."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.compass import FedCompass, Group, Scheduler
from benchmarks.learning.rivals.federation import Client, Federation


@dataclass
class Paced:
    """A client whose gradient is always one, and which takes `pace` seconds a step, or what `times` has."""

    pace: float
    times: list[float] = field(default_factory=list)
    share: int = 10
    steps: list[int] = field(default_factory=list)
    gradients: int = 0

    def seconds(self, steps: int) -> float:
        self.steps.append(steps)
        return self.times.pop(0) if self.times else self.pace * steps

    def descend(self, start: Vector, steps: int, move: Callable[[Vector, Vector], None]) -> Vector:
        theta = start.copy()
        for _ in range(steps):
            move(theta, np.ones_like(theta))
        self.gradients += steps
        return theta

    def reported(self, steps: int) -> tuple[float, int]:
        return 0.0, steps


class Lossless:
    """A channel that changes nothing, and says what went up: (version, change)."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, float]] = []

    def down(self, client: int, version: int, theta: Vector) -> Vector:
        return theta

    def up(self, version: int, change: Vector, loss: float, samples: int) -> Vector:
        self.changes.append((version, float(change[0])))
        return change


def federation(*clients: Paced) -> Federation:
    made: Any = Federation(
        cast(Any, None), cast(list[Client], clients), cast(Any, Lossless()), np.zeros(1, np.float32),
        np.random.default_rng(0),
    )  # fmt: skip
    return cast(Federation, made)


def test_alike_clients_arrive_as_one_group_with_all_their_steps() -> None:
    clients = [Paced(1.0) for _ in range(4)]
    run = federation(*clients)
    models = list(islice(FedCompass(0.1, least=2, most=10).models(run), 5))
    # Four first changes, each for itself; then the group of all four, 10 seconds later.
    assert run.seconds == 20
    first = sum(0.9 / 4 / math.sqrt(1 + late) for late in range(4))
    assert models[3][0] == pytest.approx(-0.1 * 10 * first)
    # They started from versions 1 to 4, and arrive at 4.
    group = sum(0.9 / 4 / math.sqrt(1 + late) for late in range(4))
    assert models[4][0] - models[3][0] == pytest.approx(-0.1 * 10 * group)
    assert [client.steps for client in clients] == [[10, 10]] * 4


def test_a_slow_client_gets_the_steps_that_let_it_arrive_with_the_others() -> None:
    """Three times as slow, it takes three or four steps where the fast one takes ten."""
    clients = [Paced(1.0), Paced(3.0)]
    run = federation(*clients)
    list(islice(FedCompass(0.1, least=2, most=10).models(run), 8))
    assert clients[1].steps[0] == 10
    assert len(clients[1].steps) > 2
    assert set(clients[1].steps[1:]) <= {3, 4}
    assert max(clients[0].steps) == 10


def test_who_is_too_slow_for_every_group_begins_one_that_the_fastest_can_join_later() -> None:
    scheduler = Scheduler(4, 10, 1.2)
    scheduler.pace = {0: 1.0, 1: 4.0}
    fast, steps = scheduler.assign(0, 0.0)
    assert (fast.due, fast.latest, steps) == (10, 12, 10)
    # Two steps fit, and four are the least. At second 12 + 10 the fast one can arrive again: five steps.
    slow, steps = scheduler.assign(1, 0.0)
    assert slow is not fast
    assert (steps, slow.due, slow.latest) == (5, 20, 24)
    fast.members.clear()
    scheduler.groups.remove(fast)
    group, steps = scheduler.assign(0, 10.0)
    assert group is slow
    assert steps == 10


def test_without_a_group_that_fits_all_steps_are_taken() -> None:
    scheduler = Scheduler(4, 10, 1.2)
    scheduler.pace = {0: 1.0, 1: 100.0}
    scheduler.groups.append(Group(-5.0, -4.0, {0}))
    assert scheduler.assign(1, 0.0)[1] == 10


def test_who_is_late_goes_with_the_next_group_and_nothing_is_lost() -> None:
    """The second takes 15 seconds instead of 10 once: the group closes at 22 without it."""
    late = Paced(1.0, [10.0, 15.0])
    run = federation(Paced(1.0), late)
    channel: Any = run.channel
    models = FedCompass(0.1, least=2, most=10).models(run)
    values = [float(next(models)[0]) for _ in range(3)]
    assert run.seconds == 22
    assert values[2] - values[1] == pytest.approx(-0.9 / 2 / math.sqrt(2))
    # It misses the group from version 2, gets four steps for the next one, and counts twice in it.
    values.append(float(next(models)[0]))
    assert run.seconds == 32
    assert [version for version, _ in channel.changes[3:]] == [2, 3, 3]
    assert values[3] - values[2] == pytest.approx(-0.9 / 2 * (1 / math.sqrt(2) + 0.4 + 1))
