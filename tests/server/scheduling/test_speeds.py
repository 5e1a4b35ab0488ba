"""What a device's last tasks say of its next one."""

import numpy as np
import pytest

from edgeflock.server.scheduling.planning import Speeds


def test_nothing_is_known_of_nobody() -> None:
    assert Speeds().predict(1, first=True) is None


def test_one_that_never_changes_is_known_exactly() -> None:
    speeds = Speeds()
    for _ in range(5):
        speeds.observe(1, 3.0, first=False)
    assert speeds.predict(1, first=False) == pytest.approx(3.0)
    assert speeds.predict(1, first=True) == pytest.approx(3.0)


def test_a_stranger_is_as_the_others() -> None:
    speeds = Speeds()
    speeds.observe(1, 1.0, first=True)
    speeds.observe(2, 100.0, first=True)
    assert speeds.predict(3, first=True) == pytest.approx(10.0)


def test_where_delays_stay_the_last_counts_and_where_they_do_not_the_mean() -> None:
    """Within a round they are alike, from round to round independent: as in the paper."""
    random, speeds = np.random.default_rng(0), Speeds()
    for _ in range(300):
        for device in range(5):
            seconds = float(random.lognormal())
            speeds.observe(device, seconds, first=True)
            speeds.observe(device, seconds, first=False)
    speeds.observe(0, 20.0, first=True)
    within, between = speeds.predict(0, first=False), speeds.predict(0, first=True)
    assert within is not None
    assert between is not None
    assert within > 12
    assert between < 6


def test_what_was_stopped_would_have_taken_longer() -> None:
    speeds = Speeds()
    speeds.observe(1, 1.0, first=True)
    speeds.observe_unfinished(1, 0.5, first=True)  # as had to be expected
    assert speeds.predict(1, first=True) == pytest.approx(1.0)
    for _ in range(40):
        speeds.observe_unfinished(1, 50.0, first=True)
    late = speeds.predict(1, first=True)
    assert late is not None
    assert late > 50
