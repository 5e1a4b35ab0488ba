"""Rates of streams: estimated, drawn as in Table I of ScaDLES, and integrated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.data import rates
from edgeflock.shared.data.rates import RateEstimator, batch_size

seconds = st.floats(0, 1e4, allow_nan=False)


@given(rate=st.floats(0, 1e9), low=st.integers(1, 50), more=st.integers(0, 5000))
def test_the_batch_is_the_rate_within_its_bounds(rate: float, low: int, more: int) -> None:
    size = batch_size(rate, low, low + more)
    assert low <= size <= low + more
    if low <= rate <= low + more:
        assert abs(size - rate) <= 0.5


def test_the_papers_bounds() -> None:
    assert [batch_size(rate) for rate in (0.0, 3.0, 8.4, 64.0, 1e6)] == [8, 8, 8, 64, 1024]


@given(arrivals=st.lists(st.tuples(seconds, st.integers(0, 1000)), max_size=30), later=seconds)
def test_the_estimate_is_its_formula(arrivals: list[tuple[float, int]], later: float) -> None:
    arrivals = sorted(arrivals)
    estimator = RateEstimator(seconds=7.0)
    for second, count in arrivals:
        estimator.add(count, second)
    if not arrivals:
        assert estimator.rate(later) == 0
        return
    first = arrivals[0][0]
    now = arrivals[-1][0] + later
    weighted = math.fsum(count * math.exp((second - now) / 7) for second, count in arrivals[1:])
    expected = weighted / (7 * (1 - math.exp(-max(now - first, 1) / 7)))
    assert estimator.rate(now) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rate", [1, 64, 900])
@pytest.mark.parametrize("every", [0.01, 0.25, 1.0])
def test_a_steady_stream_is_known_after_its_first_seconds(rate: float, every: float) -> None:
    """At an arrival: between two, the estimate is up to `every` behind."""
    estimator = RateEstimator()
    second = 0.0
    for tick in range(1000):
        second = tick * every
        estimator.add(round((tick + 1) * rate * every) - round(tick * rate * every), second)
        if second >= 2 and rate * every >= 1:
            assert estimator.rate(second) == pytest.approx(rate, rel=0.06)


def test_it_follows_a_change_forgets_in_silence_and_bears_a_burst() -> None:
    estimator = RateEstimator(seconds=10)
    for tenth in range(1000):
        estimator.add(6, tenth / 10)
    assert estimator.rate(100) == pytest.approx(60, rel=0.01)
    assert estimator.rate(100 + 10 * math.log(2)) == pytest.approx(30, rel=0.02)
    estimator.add(100, 100)
    assert estimator.rate(100) == pytest.approx(70, rel=0.02)
    for tenth in range(1000, 1500):
        estimator.add(1, tenth / 10)
    assert estimator.rate(150) == pytest.approx(10, rel=0.05)
    assert estimator.rate(1e6) < 1e-9


def test_a_backlog_at_the_beginning_is_no_rate() -> None:
    estimator = RateEstimator()
    estimator.add(100_000, 5.0)
    assert estimator.rate(5.0) == 0
    assert estimator.rate(9.0) == 0


def test_a_clock_that_goes_back_does_no_harm() -> None:
    estimator = RateEstimator()
    for second in (0.0, 10.0, 4.0, 11.0):
        estimator.add(50, second)
    assert 0 < estimator.rate(3.0) < 200


@pytest.mark.parametrize(("draw", "mean", "deviation"), [(rates.uniform, 300, 112), (rates.normal, 256, 28)])
def test_drawn_rates_have_mean_and_deviation(draw: rates.Distribution, mean: float, deviation: float) -> None:
    drawn = draw(np.random.default_rng(1), mean, deviation, 100_000)
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert drawn.std() == pytest.approx(deviation, rel=0.01)


def test_uniform_rates_stay_in_their_range() -> None:
    drawn = rates.uniform(np.random.default_rng(1), 300, 112, 100_000)
    assert drawn.min() == pytest.approx(300 - 112 * math.sqrt(3), abs=0.1)
    assert drawn.max() == pytest.approx(300 + 112 * math.sqrt(3), abs=0.1)


@pytest.mark.parametrize("draw", rates.DISTRIBUTIONS.values())
def test_rates_stay_within_the_bounds_of_a_batch(draw: rates.Distribution) -> None:
    assert draw(np.random.default_rng(1), 38, 24, 10_000).min() == rates.LOW
    assert draw(np.random.default_rng(1), 1000, 100, 10_000).max() == rates.HIGH
