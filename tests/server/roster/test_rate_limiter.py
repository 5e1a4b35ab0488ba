"""What devices owe, by a clock that the tests turn."""

import pytest

from edgeflock.server.roster.rate_limiter import BURST, LONGEST, MAKING, RECORD, Bucket, RateLimiters
from edgeflock.shared.settings.limits import LimitSettings

RATE = 1 << 16


def paces(rate: float = 100.0 * RATE) -> RateLimiters:
    return RateLimiters(LimitSettings(device_rate=RATE, rate=rate))


def test_a_bucket_is_paid_for_at_its_rate() -> None:
    bucket = Bucket(10, 40)
    bucket.take(40, 5)
    assert bucket.owes(5) == 0
    bucket.take(25, 5)
    assert bucket.owes(5) == 2.5
    assert bucket.owes(6) == 1.5
    bucket.take(10, 7.5)
    assert bucket.owes(7.5) == 1


def test_rest_is_saved_up_to_the_size() -> None:
    bucket = Bucket(10, 40)
    bucket.take(40, 0)
    assert bucket.owes(1000) < 0
    bucket.take(50, 1000)
    assert bucket.owes(1000) == 1


def test_a_device_owes_for_records_and_their_bytes() -> None:
    pace = paces().of("pi")
    spent = 0
    while spent + RECORD <= BURST * RATE:
        assert pace.wait(0) <= 0
        pace.spend(0, 0)
        spent += RECORD
    pace.spend(RATE, 0)
    assert pace.wait(0) == pytest.approx((spent + RATE + RECORD) / RATE - BURST)


def test_one_device_does_not_owe_for_another() -> None:
    both = paces()
    both.of("greedy").spend(int(BURST + 1) * RATE, 0)
    assert both.of("greedy").wait(0) > 0
    assert both.of("greedy") is both.of("greedy")
    assert both.of("pi").wait(0) <= 0


def test_all_together_have_a_rate() -> None:
    all_ = paces(rate=RATE)
    for name in range(10):
        all_.of(str(name)).spend(RATE // 2, 0)
    assert all_.of("another").wait(0) == pytest.approx((5 * RATE + 10 * RECORD) / RATE - BURST)


def test_models_that_are_made_cost_who_asks_for_them_alone() -> None:
    all_ = paces(rate=RATE)
    all_.of("greedy").let_make(int(BURST + 2) * RATE // MAKING, 0)
    assert all_.of("greedy").wait(0) == pytest.approx(2, abs=0.01)
    assert all_.of("pi").wait(0) <= 0


def test_a_line_stays_alive() -> None:
    pace = paces().of("pi")
    pace.spend(1 << 40, 0)
    assert pace.wait(0) == LONGEST


def test_no_honest_fleet_feels_the_defaults() -> None:
    """A thousand devices with updates of 10 kB and answers of 100 kB a second, one of them with 2,000."""
    all_ = RateLimiters(LimitSettings())
    for second in range(8):
        for name in range(1000):
            pace = all_.of(str(name))
            for _ in range(2000 if name == 0 else 1):
                pace.spend(10_000, second)
                pace.spend(100_000 if name else 10_000, second)
        assert all(all_.of(str(name)).wait(second) <= 0 for name in range(1000))
