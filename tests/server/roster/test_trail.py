"""What is kept of how a run went: fine for a minute, coarse for a day, and no more."""

from itertools import pairwise

from edgeflock.server.roster.hub import TIERS, Trail
from edgeflock.shared.protocol.frames import Mark


def mark(time: float) -> Mark:
    return Mark(time, int(time), 0, 0, None, 1)


def test_the_longer_ago_the_coarser() -> None:
    trail = Trail()
    assert trail.rows() == []
    for second in range(2 * 86_400):
        trail.add(mark(1e9 + second + 0.03 * (second % 3)))  # the loop comes a little late
    times = [row.time - 1e9 - 2 * 86_400 for row in trail.rows()]
    assert times == sorted(times)
    steps = {round(after - before) for before, after in pairwise(times) if before > -58}
    assert steps == {1}
    assert {round(after - before) for before, after in pairwise(times) if -3500 < before < -75} == {10}
    assert {round(after - before) for before, after in pairwise(times) if before < -4000} == {300}
    assert times[0] < -85_000
    assert len(times) <= sum(most for _, most in TIERS)


def test_a_clock_that_is_set_back_begins_anew() -> None:
    trail = Trail()
    for time in (1e9, 1e9 + 10, 1e9 - 3600, 1e9 - 3599):
        trail.add(mark(time))
    assert [row.time for row in trail.rows()] == [1e9 - 3600, 1e9 - 3599]
