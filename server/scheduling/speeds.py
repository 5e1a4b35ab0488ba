"""Predict how long a device's next task takes from how long its last ones took.

All devices together estimate rho, the correlation of a task's logarithmic duration with the one before. There
is one within a round, and one from the last of a round to the first of a later one. The prediction is the
device's mean m, drawn towards its last duration:

    log T = m + rho (log T_last - m)

In the paper all tasks of a round are alike (rho = 1 within). Persistent stragglers are alike between rounds.
"""

import math
from dataclasses import dataclass, field

_PRIOR = 4.0
"""Pairs of equal durations in the prior. So delays count as correlated until the data show otherwise.
"""

_SPREAD = 0.25
"""The variance of the logarithms of the prior's durations."""

_MIN_SECONDS = 1e-9
"""The least seconds of a duration, so that it has a logarithm."""


@dataclass(slots=True)
class Correlation:
    """Of consecutive durations, over all devices: the moments about each device's own mean."""

    covariance: float = _PRIOR * _SPREAD
    variance: float = _PRIOR * _SPREAD

    def add(self, last: float, now: float) -> None:
        self.covariance += last * now
        self.variance += (last * last + now * now) / 2

    @property
    def rho(self) -> float:
        return max(0.0, self.covariance / self.variance)


@dataclass(slots=True)
class Speeds:
    """The devices' measured speeds. Durations are in seconds of any one clock."""

    within: Correlation = field(default_factory=Correlation)
    between: Correlation = field(default_factory=Correlation)
    _speeds: dict[int, "_Speed"] = field(default_factory=dict)

    def observe(self, device: int, seconds: float, *, first: bool) -> None:
        """Add a task's duration. `first`: it was the device's first of a round."""
        now = math.log(max(seconds, _MIN_SECONDS))
        speed = self._speeds.setdefault(device, _Speed(now))
        if speed.count:
            pair = self.between if first else self.within
            pair.add(speed.last - speed.mean, now - speed.mean)
        speed.add(now)

    def observe_unfinished(self, device: int, seconds: float, *, first: bool) -> None:
        """Add a task that was stopped after so many seconds.

        It counts as twice that if more than expected: the time so far is the best guess of the rest.
        """
        expected = self.predict(device, first=first)
        if expected is None or expected < seconds:
            self.observe(device, 2 * seconds, first=first)

    @property
    def has_any(self) -> bool:
        """Whether any duration is known."""
        return bool(self._speeds)

    def predict(self, device: int, *, first: bool) -> float | None:
        """Seconds that the device's next task takes.

        The others' mean if none of its own is known; None if none at all is.
        """
        speed = self._speeds.get(device)
        if speed is not None:
            rho = (self.between if first else self.within).rho
            return math.exp(speed.mean + rho * (speed.last - speed.mean))
        if not self._speeds:
            return None
        return math.exp(sum(one.mean for one in self._speeds.values()) / len(self._speeds))


_MEMORY = 0.1
"""The weight of the newest duration in the mean, once there are many."""


@dataclass(slots=True)
class _Speed:
    """The speed of one device, in logarithms of seconds."""

    last: float
    mean: float = 0.0
    count: int = 0

    def add(self, now: float) -> None:
        self.count += 1
        self.mean += max(1 / self.count, _MEMORY) * (now - self.mean)
        self.last = now
