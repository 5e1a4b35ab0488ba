"""How fast devices may go on: what they cost, against what each of them, and all together, may cost a second.

What is beyond it is owed. Until it is paid, nothing more is read of who owes it (sessions/records.py,
operations/access.py): the line holds the sender back, and nothing is refused or lost. No clock here.
"""

from edgeflock.shared.settings.limits import LimitSettings

RECORD = 1 << 13
"""Bytes that each record or answer counts beside its own: what it costs to look at a small one."""

MAKING = 80
"""Bytes that each number of a model counts for who has given nothing since the last one: to make a million
of them takes 30 ms, of which it may have a tenth."""

BURST = 4.0
"""Seconds of a rate that may be spent at once, after as much rest."""

LONGEST = 20.0
"""Seconds after which one record more is read in any case: a device that hears nothing of its pings for
longer takes the line for dead."""


class Bucket:
    """What may be spent: it fills at `rate` a second up to `size`, and may be overdrawn."""

    def __init__(self, rate: float, size: float) -> None:
        self._rate, self._size = rate, size
        self._level, self._then = size, 0.0

    def take(self, amount: float, now: float) -> None:
        filled = self._level + (now - self._then) * self._rate
        self._level, self._then = min(self._size, filled) - amount, now

    def owes(self, now: float) -> float:
        """Seconds until what was taken is paid; 0 or less if it is."""
        return -self._level / self._rate - (now - self._then)


class RateLimiter:
    """Of one device. Sessions of one name have one: whoever comes anew owes what it owed."""

    def __init__(self, own: Bucket, of_all: Bucket) -> None:
        self._own, self._of_all = own, of_all
        self.held_back = 0.0
        """Seconds that nothing was read of it, since the server started."""

    def spend(self, octets: int, now: float) -> None:
        """It has sent or is sent a record of so many bytes."""
        self._own.take(octets + RECORD, now)
        self._of_all.take(octets + RECORD, now)

    def let_make(self, numbers: int, now: float) -> None:
        """So many numbers of a model are made for it, and it has given nothing since the last ones."""
        self._own.take(MAKING * numbers, now)

    def wait(self, now: float) -> float:
        """Seconds before anything is read of it; 0 or less for at once."""
        return min(LONGEST, max(self._own.owes(now), self._of_all.owes(now)))


class RateLimiters:
    """Of all devices, by name."""

    def __init__(self, limits: LimitSettings) -> None:
        self._device_rate = limits.device_rate
        self._of_all = Bucket(limits.rate, BURST * limits.rate)
        self._paces: dict[str, RateLimiter] = {}

    def of(self, name: str) -> RateLimiter:
        pace = self._paces.get(name)
        if pace is None:
            own = Bucket(self._device_rate, BURST * self._device_rate)
            pace = self._paces[name] = RateLimiter(own, self._of_all)
        return pace

    def held_back(self, name: str) -> float:
        """Seconds that nothing was read of a device."""
        pace = self._paces.get(name)
        return 0.0 if pace is None else pace.held_back

    @property
    def total(self) -> float:
        """The same of all together."""
        return sum(pace.held_back for pace in self._paces.values())
