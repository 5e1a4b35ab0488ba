"""Limits the rate of devices: the cost of each, and of all together, per second.

A cost beyond the limit is owed. Until it is paid, the server reads nothing more from that device
(sessions/records.py, http/middleware.py). TCP holds the sender back; nothing is refused or lost. No clock.
"""

from edgeflock.shared.settings.limits import LimitSettings

RECORD = 1 << 13
"""Bytes that each record or answer costs in addition: the cost to handle a small one."""

MAKING = 80
"""Bytes per number of a model that a device gets without an update since the last one. A million numbers
take 30 ms to make, and the device may have a tenth of that time."""

BURST = 4.0
"""Seconds of a rate that may be spent at once, after as long a rest."""

LONGEST = 20.0
"""The longest wait, in seconds. One record is read after it in any case, since a device takes the line for
dead if its pings are not answered for longer."""


class Bucket:
    """A token bucket. It fills at `rate` per second up to `size`, and may be overdrawn."""

    def __init__(self, rate: float, size: float) -> None:
        self._rate, self._size = rate, size
        self._level, self._then = size, 0.0

    def take(self, amount: float, now: float) -> None:
        filled = self._level + (now - self._then) * self._rate
        self._level, self._then = min(self._size, filled) - amount, now

    def owes(self, now: float) -> float:
        """Seconds until its debt is paid. 0 or less: it has none."""
        return -self._level / self._rate - (now - self._then)


class RateLimiter:
    """The limit of one device. All sessions of one name share it, so a new session has the old debt."""

    def __init__(self, own: Bucket, of_all: Bucket) -> None:
        self._own, self._of_all = own, of_all
        self.held_back = 0.0
        """Seconds in which nothing was read from it, since the server started."""

    def spend(self, octets: int, now: float) -> None:
        """Charge a record of so many bytes, sent or received."""
        self._own.take(octets + RECORD, now)
        self._of_all.take(octets + RECORD, now)

    def let_make(self, numbers: int, now: float) -> None:
        """Charge so many numbers of a model for a device that has sent no update since the last ones."""
        self._own.take(MAKING * numbers, now)

    def wait(self, now: float) -> float:
        """Seconds to wait before the next read from it. 0 or less: none."""
        return min(LONGEST, max(self._own.owes(now), self._of_all.owes(now)))


class RateLimiters:
    """The limits of all devices, by name."""

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
        """Seconds in which nothing was read from a device."""
        pace = self._paces.get(name)
        return 0.0 if pace is None else pace.held_back

    @property
    def total(self) -> float:
        """The same, summed over all devices."""
        return sum(pace.held_back for pace in self._paces.values())
