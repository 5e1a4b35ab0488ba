"""How long a device's next task will take, from how long its last ones took.

What a device's delays have in common is learned of all devices together: the correlation of a task's
logarithmic duration with that of the one before, within a round and from the last of a round to the first
of a later one. The next is the device's mean, drawn towards its last by that:

    log T = m + rho (log T_last - m)

In the paper all of a round are alike (rho = 1 within); where stragglers persist they are between rounds, too.
"""

import math
from dataclasses import dataclass, field

_PRIOR = 4.0
"""Pairs of equal durations that are taken for seen before any was: delays are correlated until shown not to
be.
"""

_SPREAD = 0.25
"""The variance of their logarithms."""

_LEAST = 1e-9
"""Seconds; a duration has a logarithm."""


@dataclass(slots=True)
class Correlation:
    """Of one duration with the one before, over all devices: the moments about each device's own mean."""

    together: float = _PRIOR * _SPREAD
    apart: float = _PRIOR * _SPREAD

    def add(self, last: float, now: float) -> None:
        self.together += last * now
        self.apart += (last * last + now * now) / 2

    @property
    def rho(self) -> float:
        return max(0.0, self.together / self.apart)


@dataclass(slots=True)
class Speeds:
    """What is known of the devices. Durations are in seconds of any one clock."""

    within: Correlation = field(default_factory=Correlation)
    between: Correlation = field(default_factory=Correlation)
    _known: dict[int, "_Speed"] = field(default_factory=dict)

    def observe(self, device: int, seconds: float, *, first: bool) -> None:
        """A task took so long; `first` is whether it was the device's first of a round."""
        now = math.log(max(seconds, _LEAST))
        speed = self._known.setdefault(device, _Speed(now))
        if speed.count:
            pair = self.between if first else self.within
            pair.add(speed.last - speed.mean, now - speed.mean)
        speed.add(now)

    def observe_unfinished(self, device: int, seconds: float, *, first: bool) -> None:
        """A task had taken so long when it was stopped. It would have taken twice that, if anything is known:
        how long something lasts yet is best guessed by how long it has.
        """
        expected = self.expected(device, first=first)
        if expected is None or expected < seconds:
            self.observe(device, 2 * seconds, first=first)

    @property
    def any_known(self) -> bool:
        """Whether anything is known of anybody."""
        return bool(self._known)

    def expected(self, device: int, *, first: bool) -> float | None:
        """Seconds that the device's next task takes; the others' mean if nothing is known of it, None if
        nothing is of anybody.
        """
        speed = self._known.get(device)
        if speed is not None:
            rho = (self.between if first else self.within).rho
            return math.exp(speed.mean + rho * (speed.last - speed.mean))
        if not self._known:
            return None
        return math.exp(sum(one.mean for one in self._known.values()) / len(self._known))


_MEMORY = 0.1
"""The weight of the newest duration in the mean, once there are many."""


@dataclass(slots=True)
class _Speed:
    """Of one device, in logarithms of seconds."""

    last: float
    mean: float = 0.0
    count: int = 0

    def add(self, now: float) -> None:
        self.count += 1
        self.mean += max(1 / self.count, _MEMORY) * (now - self.mean)
        self.last = now
