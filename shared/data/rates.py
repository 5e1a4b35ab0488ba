"""Rates of samples that arrive on a device: estimates, the batch size for a rate, and curves over time.

After S. Tyagi, M. Swany, "ScaDLES: Scalable Deep Learning over Streaming data at the Edge", 2022. Rates are
in samples per second. Time is an argument, in seconds from any fixed moment. A curve gives the number of
samples that arrived by a time, in seconds from the stream's beginning:

    64                         samples a second, forever
    uniform(38,24)             the same, drawn once, as (mean,deviation); or normal(64,24)
    sine:12..108/60s           between 12 and 108 and back within 60 seconds
    square:500..20/30s         500 for half of 30 seconds, 20 for the other half; on and off with 100..0
    steps:0:64,60:16           64 from second 0 on, 16 from second 60; each may be drawn or 0
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError

LOW, HIGH = 8, 1024
"""b_min and b_max (section V D)."""


def batch_size(rate: float, low: int = LOW, high: int = HIGH) -> int:
    """b_i = S_i, within low <= b_i <= high (section IV, heterogeneous streams)."""
    return min(max(round(rate), low), high)


class RateEstimator:
    """An estimate of the rate S_i of a stream, from n_k samples that arrived at t_k, k = 1, 2, ...

        S(t) = sum_k n_k exp(-(t - t_k) / T) / (T (1 - exp(-max(t - t_0, 1) / T)))

    It is an exponentially weighted moving average over about T seconds. The denominator is the weight of the
    time since t_0, so that it does not underestimate a steady stream at first. The first arrival sets t_0 and
    does not count: the time that its samples took is unknown. So a backlog that arrives at once does not
    count as a rate. A burst of n adds at most n / T to a settled estimate, and in silence S halves every 0.7
    T seconds. For arrivals at random moments of a stream of rate S, the relative deviation is 1 / sqrt(2 S
    T).
    """

    def __init__(self, seconds: float = 10.0) -> None:
        """`seconds`: T."""
        self._seconds = seconds
        self._first: float | None = None
        self._last = 0.0
        self._weighted = 0.0

    def add(self, count: int, now: float) -> None:
        """Count `count` samples that arrived at `now`. A clock that goes back counts as stopped."""
        if self._first is None:
            self._first = self._last = now
            return
        self._weighted = self._current_weight(now) + count
        self._last = max(self._last, now)

    def rate(self, now: float) -> float:
        """S(now); 0 before the first arrival."""
        if self._first is None:
            return 0.0
        elapsed = max(now - self._first, 1.0)
        return self._current_weight(now) / (-math.expm1(-elapsed / self._seconds) * self._seconds)

    def _current_weight(self, now: float) -> float:
        return self._weighted * math.exp(-max(0.0, now - self._last) / self._seconds)


# Table I: the rates of a fleet, float64 [count]. All are clipped to LOW and HIGH, as in section V D: without
# that a uniform rate of mean 38 and deviation 24 can be below zero.


def uniform(random: np.random.Generator, mean: float, deviation: float, count: int) -> NDArray[np.float64]:
    """Uniform with this mean and standard deviation: its half width is deviation * sqrt(3)."""
    half = deviation * math.sqrt(3)
    return np.clip(random.uniform(mean - half, mean + half, count), LOW, HIGH)


def normal(random: np.random.Generator, mean: float, deviation: float, count: int) -> NDArray[np.float64]:
    return np.clip(random.normal(mean, deviation, count), LOW, HIGH)


Distribution = Callable[[np.random.Generator, float, float, int], NDArray[np.float64]]

DISTRIBUTIONS: dict[str, Distribution] = {"uniform": uniform, "normal": normal}

NUMBER = r"\d+(?:\.\d+)?"
RATE = rf"{NUMBER}|(?:{'|'.join(DISTRIBUTIONS)})\({NUMBER},{NUMBER}\)"


def draw(text: str, random: np.random.Generator) -> float:
    """Return the rate of `text`: 64, uniform(38,24) or normal(64,24) as (mean,sd). Raises ConfigError."""
    if not re.fullmatch(RATE, text):
        drawn = " or ".join(f"{name}(mean,sd)" for name in DISTRIBUTIONS)
        raise ConfigError(f"rate {text!r} must be a number, {drawn}")
    name, bracket, numbers = text.rstrip(")").partition("(")
    if not bracket:
        return float(name)
    mean, deviation = map(float, numbers.split(","))
    return float(DISTRIBUTIONS[name](random, mean, deviation, 1)[0])


class RateCurve(Protocol):
    @property
    def period(self) -> float:
        """The seconds after which the curve repeats; infinity if it never does."""

    def arrivals(self, second: float) -> float:
        """The samples from second 0 to `second`: the integral of the rate."""

    def arrival_time(self, count: float) -> float:
        """The second at which the `count`-th sample is complete; infinity if it never comes."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A rate that changes at given seconds."""

    steps: tuple[tuple[float, float], ...]
    """(from second, rate), in order, the first from second 0."""
    period: float = math.inf

    def arrivals(self, second: float) -> float:
        if second < self.period:
            return self._within(second)
        rounds, rest = divmod(second, self.period)
        return rounds * self._within(self.period) + self._within(rest)

    def arrival_time(self, count: float) -> float:
        begin = 0.0
        if self.period < math.inf:
            each = self._within(self.period)
            if each == 0:
                return math.inf
            # If a period ends with this count, the sample is complete within that period.
            rounds = max(0, math.ceil(count / each) - 1)
            begin, count = rounds * self.period, count - rounds * each
        last = math.inf
        for start, end, rate in self._spans():
            if rate > 0 and count <= rate * (end - start):
                return begin + start + count / rate
            if rate > 0:
                count, last = count - rate * (end - start), begin + end
        return last if self.period < math.inf else math.inf  # by rounding, a little may be left of a period

    def _within(self, second: float) -> float:
        return sum(rate * (min(second, end) - start) for start, end, rate in self._spans() if start < second)

    def _spans(self) -> list[tuple[float, float, float]]:
        ends = [start for start, _ in self.steps[1:]] + [self.period]
        return [(start, end, rate) for (start, rate), end in zip(self.steps, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class Sine:
    """A sine that starts upwards from the middle of `low` and `high`."""

    low: float
    high: float
    period: float

    def arrivals(self, second: float) -> float:
        turn = 2 * math.pi / self.period
        middle, swing = (self.low + self.high) / 2, (self.high - self.low) / 2
        return middle * second + swing / turn * (1 - math.cos(turn * second))

    def arrival_time(self, count: float) -> float:
        middle, swing = (self.low + self.high) / 2, (self.high - self.low) / 2
        if middle == 0:
            return math.inf
        # At any time the swing has added between 0 and swing * period / pi samples.
        late = count / middle
        early = max(0.0, late - swing * self.period / (math.pi * middle))
        while late - early > 1e-9 * max(1.0, late):
            half = (early + late) / 2
            early, late = (half, late) if self.arrivals(half) < count else (early, half)
        return late


@dataclass(frozen=True, slots=True)
class ShiftedCurve:
    """A curve that starts at second `begin` of another curve."""

    curve: RateCurve
    begin: float

    @property
    def period(self) -> float:
        return self.curve.period

    def arrivals(self, second: float) -> float:
        return self.curve.arrivals(self.begin + second) - self.curve.arrivals(self.begin)

    def arrival_time(self, count: float) -> float:
        return self.curve.arrival_time(count + self.curve.arrivals(self.begin)) - self.begin


def constant_rate(rate: float) -> RateCurve:
    return Steps(((0.0, rate),))


def curve(text: str, random: np.random.Generator) -> RateCurve:
    """Parse the curve in `text`; `random` draws random rates. Raises ConfigError."""
    kind, colon, rest = text.partition(":")
    if colon and kind in _CURVES:
        return _CURVES[kind](rest, text, random)
    if re.fullmatch(RATE, text):
        return constant_rate(draw(text, random))
    raise ConfigError(
        f"rate {text!r} must be a number, uniform(mean,sd) or normal(mean,sd), sine:LOW..HIGH/SECONDSs, "
        "square:FIRST..SECOND/SECONDSs or steps:SECOND:RATE,SECOND:RATE,..., "
        "e.g. 64, normal(64,24), sine:12..108/60s or steps:0:500,30:20"
    )


def _sine(rest: str, text: str, random: np.random.Generator) -> RateCurve:
    low, high, period = _swing(rest, text)
    if low > high:
        raise ConfigError(f"rate {text!r}: {low:g} is above {high:g}; the lower one comes first")
    return Sine(low, high, period)


def _square(rest: str, text: str, random: np.random.Generator) -> RateCurve:
    first, second, period = _swing(rest, text)
    return Steps(((0.0, first), (period / 2, second)), period)


def _swing(rest: str, text: str) -> tuple[float, float, float]:
    found = re.fullmatch(rf"({NUMBER})\.\.({NUMBER})/({NUMBER})s", rest)
    if not found or float(found[3]) <= 0:
        kind = text.partition(":")[0]
        raise ConfigError(f"rate {text!r} must be {kind}:RATE..RATE/SECONDSs, e.g. {kind}:12..108/60s")
    return float(found[1]), float(found[2]), float(found[3])


def _steps(rest: str, text: str, random: np.random.Generator) -> RateCurve:
    if not re.fullmatch(rf"{NUMBER}:(?:{RATE})(?:,{NUMBER}:(?:{RATE}))*", rest):
        raise ConfigError(
            f"rate {text!r} must be steps:SECOND:RATE,SECOND:RATE,..., e.g. steps:0:64,60:uniform(38,24)"
        )
    steps = [
        (float(second), draw(rate, random)) for second, rate in re.findall(rf"({NUMBER}):({RATE})", rest)
    ]
    seconds = [second for second, _ in steps]
    if seconds[0] != 0 or seconds != sorted(set(seconds)):
        raise ConfigError(f"rate {text!r}: the seconds must begin at 0 and increase")
    return Steps(tuple(steps))


_CURVES: dict[str, Callable[[str, str, np.random.Generator], RateCurve]] = {
    "sine": _sine,
    "square": _square,
    "steps": _steps,
}
