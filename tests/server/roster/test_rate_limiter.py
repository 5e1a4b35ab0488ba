"""What devices owe, by a clock that the tests turn."""

import pytest

from edgeflock.server.roster.rate_limiter import (
    BURST_SECONDS,
    LONGEST_WAIT,
    NUMBER_COST,
    RECORD_COST,
    Bucket,
    RateLimiters,
)
from edgeflock.shared.settings.limits import LimitSettings

RATE = 1 << 16


def paces(rate: float = 100.0 * RATE) -> RateLimiters:
    return RateLimiters(LimitSettings(device_rate=RATE, rate=rate))


def test_a_bucket_is_paid_for_at_its_rate() -> None:
    bucket = Bucket(10, 40)
    bucket.take(40, 5)
    assert bucket.debt_seconds(5) == 0
    bucket.take(25, 5)
    assert bucket.debt_seconds(5) == 2.5
    assert bucket.debt_seconds(6) == 1.5
    bucket.take(10, 7.5)
    assert bucket.debt_seconds(7.5) == 1


def test_rest_is_saved_up_to_the_size() -> None:
    bucket = Bucket(10, 40)
    bucket.take(40, 0)
    assert bucket.debt_seconds(1000) < 0
    bucket.take(50, 1000)
    assert bucket.debt_seconds(1000) == 1


def test_a_device_owes_for_records_and_their_bytes() -> None:
    pace = paces().get("pi")
    spent = 0
    while spent + RECORD_COST <= BURST_SECONDS * RATE:
        assert pace.wait_seconds(0) <= 0
        pace.charge(0, 0)
        spent += RECORD_COST
    pace.charge(RATE, 0)
    assert pace.wait_seconds(0) == pytest.approx((spent + RATE + RECORD_COST) / RATE - BURST_SECONDS)


def test_one_device_does_not_owe_for_another() -> None:
    both = paces()
    both.get("greedy").charge(int(BURST_SECONDS + 1) * RATE, 0)
    assert both.get("greedy").wait_seconds(0) > 0
    assert both.get("greedy") is both.get("greedy")
    assert both.get("pi").wait_seconds(0) <= 0


def test_all_together_have_a_rate() -> None:
    all_ = paces(rate=RATE)
    for name in range(10):
        all_.get(str(name)).charge(RATE // 2, 0)
    assert all_.get("another").wait_seconds(0) == pytest.approx(
        (5 * RATE + 10 * RECORD_COST) / RATE - BURST_SECONDS
    )


def test_models_that_are_made_cost_who_asks_for_them_alone() -> None:
    all_ = paces(rate=RATE)
    all_.get("greedy").charge_numbers(int(BURST_SECONDS + 2) * RATE // NUMBER_COST, 0)
    assert all_.get("greedy").wait_seconds(0) == pytest.approx(2, abs=0.01)
    assert all_.get("pi").wait_seconds(0) <= 0


def test_a_line_stays_alive() -> None:
    pace = paces().get("pi")
    pace.charge(1 << 40, 0)
    assert pace.wait_seconds(0) == LONGEST_WAIT


def test_no_honest_fleet_feels_the_defaults() -> None:
    """A thousand devices with updates of 10 kB and answers of 100 kB a second, one of them with 2,000."""
    all_ = RateLimiters(LimitSettings())
    for second in range(8):
        for name in range(1000):
            pace = all_.get(str(name))
            for _ in range(2000 if name == 0 else 1):
                pace.charge(10_000, second)
                pace.charge(100_000 if name else 10_000, second)
        assert all(all_.get(str(name)).wait_seconds(second) <= 0 for name in range(1000))
