"""Rates that change: what has arrived by when."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.data import rates
from edgeflock.shared.data.rates import RateCurve, ShiftedCurve, Sine, Steps, constant_rate, curve
from edgeflock.shared.errors import ConfigError


def of(text: str, seed: int = 0) -> RateCurve:
    return curve(text, np.random.default_rng(seed))


def test_what_is_said_of_a_rate() -> None:
    assert of("64") == constant_rate(64)
    assert of("sine:12..108/60s") == Sine(12, 108, 60)
    assert of("square:500..20/30s") == Steps(((0, 500), (15, 20)), 30)
    assert of("steps:0:64,60:16.5,90.25:0") == Steps(((0, 64), (60, 16.5), (90.25, 0)))


def test_what_is_drawn_comes_of_the_seed() -> None:
    random = np.random.default_rng(3)
    expected = [rates.uniform(random, 38, 24, 1)[0], rates.normal(random, 256, 28, 1)[0]]
    assert of("steps:0:uniform(38,24),60:normal(256,28)", seed=3) == Steps(
        ((0, expected[0]), (60, expected[1]))
    )
    assert of("uniform(38,24)", 1) != of("uniform(38,24)", 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be a number"),
        ("-3", "must be a number"),
        ("fast", "must be a number"),
        ("gamma(1,2)", "must be a number"),
        ("triangle:1..2/3s", "must be a number"),
        ("sine:12..108", r"must be sine:RATE\.\.RATE/SECONDSs, e\.g\. sine:12\.\.108/60s"),
        ("sine:12..108/0s", "must be sine:"),
        ("sine:108..12/60s", "108 is above 12"),
        ("square:12-108/60s", "must be square:"),
        ("steps:64", "must be steps:"),
        ("steps:0:", "must be steps:"),
        ("steps:1:64", "must begin at 0"),
        ("steps:0:64,0:16", "begin at 0 and increase"),
        ("steps:0:9,5:3,4:1", "begin at 0 and increase"),
        ("steps:0:gamma(1,2)", "must be steps:"),
    ],
)
def test_what_is_no_rate(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"rate {text!r}.*{says}" if "(" not in text else says):
        of(text)


RATE = st.floats(0.25, 500) | st.just(0.0)


@st.composite
def stepped(draw: st.DrawFn) -> Steps:
    spans = draw(st.lists(st.tuples(st.floats(0.5, 50), RATE), min_size=1, max_size=5))
    starts = [math.fsum(length for length, _ in spans[:i]) for i in range(len(spans) + 1)]
    period = draw(st.sampled_from([math.inf, starts[-1]]))
    return Steps(tuple((start, rate) for start, (_, rate) in zip(starts[:-1], spans, strict=True)), period)


waving = st.builds(
    lambda low, more, period: Sine(low, low + more, period), RATE, st.floats(0, 500), st.floats(1, 100)
)
curves = st.one_of(stepped(), waving)
shifted = st.one_of(curves, st.builds(ShiftedCurve, curves, st.floats(0, 200)))


@given(curve=shifted, count=st.integers(1, 2000))
def test_a_sample_arrives_when_so_many_have(curve: RateCurve, count: int) -> None:
    second = curve.arrival_time(count)
    if second == math.inf:
        assert curve.arrivals(1e6) < count + 1e-6
    else:
        assert curve.arrivals(second) == pytest.approx(count, abs=1e-3)


@given(curve=shifted, seconds=st.lists(st.floats(0, 500), min_size=2, max_size=2).map(sorted))
def test_nothing_that_arrived_goes_again(curve: RateCurve, seconds: list[float]) -> None:
    early, late = map(curve.arrivals, seconds)
    assert -1e-6 <= early <= late + 1e-6


def test_rounding_loses_no_sample() -> None:
    third = Steps(((0.0, 1 / 3),), 1.0)
    for count in range(1, 200):
        assert third.arrival_time(count) == pytest.approx(3 * count)


def test_what_has_arrived_is_the_area_under_the_rate() -> None:
    steps = of("steps:0:64,60:16")
    assert [steps.arrivals(second) for second in (0, 1, 60, 61)] == [0, 64, 3840, 3856]
    square = of("square:500..20/30s")
    assert [square.arrivals(second) for second in (15, 16, 30, 31, 75)] == [7500, 7520, 7800, 8300, 23100]
    wave = of("sine:12..108/60s")
    assert [wave.arrivals(60 * n) for n in (0, 1, 2)] == pytest.approx([0, 3600, 7200])
    tops = [wave.arrivals(at + 0.01) - wave.arrivals(at - 0.01) for at in (15, 45)]
    assert tops == pytest.approx([0.02 * 108, 0.02 * 12], rel=1e-3)
    later = ShiftedCurve(wave, 45)
    assert later.arrivals(15) == pytest.approx(wave.arrivals(60) - wave.arrivals(45))
