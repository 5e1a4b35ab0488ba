"""Rates of samples that arrive on a device, and the batch size for a rate.

After S. Tyagi, M. Swany, "ScaDLES: Scalable Deep Learning over Streaming data at the Edge", 2022. Rates are
in samples per second. Time is an argument, in seconds from any fixed moment.
"""

import math
import re
from collections.abc import Callable

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
