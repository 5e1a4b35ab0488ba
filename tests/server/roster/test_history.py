"""A device's recent updates, in a ring."""

import math

from edgeflock.server.roster.statistics import LONG, SHORT, History


def test_the_newest_points_oldest_first() -> None:
    history = History(4)
    assert history.points() == []
    for number in range(11):
        history.add(1e9 + number, number / 4, number, number * 1000)
    assert history.points() == [(1e9 + n, n / 4, n, n * 1000) for n in (7, 8, 9, 10)]


def test_a_loss_that_is_no_number() -> None:
    history = History(4)
    for loss in (math.nan, math.inf, 1e300, 0.5):
        history.add(0.0, loss, 1 << 40, 1 << 60)
    assert [(p.loss, p.staleness, p.bytes) for p in history.points()] == [
        (loss, 0xFFFFFFFF, 1 << 60) for loss in (None, None, None, 0.5)
    ]


def test_large_fleets_keep_less() -> None:
    for devices, expected in ((1, LONG), (1_000, LONG), (1_001, SHORT), (10_000, SHORT)):
        history = History.from_fleet_size(devices)
        assert history is not None
        for number in range(300):
            history.add(float(number), 0.0, 0, 0)
        assert len(history.points()) == expected
    assert History.from_fleet_size(10_001) is None
