"""Limits the rate of devices: the cost of each, and of all together, per second.

A cost beyond the limit is owed. Until it is paid, the server reads nothing more from that device
(sessions/records.py, http/middleware.py). TCP holds the sender back; nothing is refused or lost. No clock.
"""

from edgeflock.shared.settings.limits import LimitSettings

RECORD_COST = 1 << 13
"""Bytes that each record or answer costs in addition: the cost to handle a small one."""

NUMBER_COST = 80
"""Bytes per number of a model that a device gets without an update since the last one. A million numbers
take 30 ms to make, and the device may have a tenth of that time."""

BURST_SECONDS = 4.0
"""Seconds of a rate that may be spent at once, after as long a rest."""

LONGEST_WAIT = 20.0
"""The longest wait, in seconds. One record is read after it in any case, since a device takes the line for
dead if its pings are not answered for longer."""


class Bucket:
    """A token bucket. It fills at `rate` per second up to `size`, and may be overdrawn."""

    def __init__(self, rate: float, size: float) -> None:
        self._rate, self._size = rate, size
        self._level, self._updated = size, 0.0

    def take(self, amount: float, now: float) -> None:
        filled = self._level + (now - self._updated) * self._rate
        self._level, self._updated = min(self._size, filled) - amount, now

    def debt_seconds(self, now: float) -> float:
        """Seconds until its debt is paid. 0 or less: it has none."""
        return -self._level / self._rate - (now - self._updated)


class RateLimiter:
    """The limit of one device. All sessions of one name share it, so a new session has the old debt."""

    def __init__(self, own: Bucket, common: Bucket) -> None:
        self._own, self._common = own, common
        self.delay_seconds = 0.0
        """Seconds in which nothing was read from it, since the server started."""

    def charge(self, octets: int, now: float) -> None:
        """Charge a record of so many bytes, sent or received."""
        self._own.take(octets + RECORD_COST, now)
        self._common.take(octets + RECORD_COST, now)

    def charge_numbers(self, numbers: int, now: float) -> None:
        """Charge so many numbers of a model for a device that has sent no update since the last ones."""
        self._own.take(NUMBER_COST * numbers, now)

    def wait_seconds(self, now: float) -> float:
        """Seconds to wait before the next read from it. 0 or less: none."""
        return min(LONGEST_WAIT, max(self._own.debt_seconds(now), self._common.debt_seconds(now)))


class RateLimiters:
    """The limits of all devices, by name."""

    def __init__(self, limits: LimitSettings) -> None:
        self._device_rate = limits.device_rate
        self._common = Bucket(limits.rate, BURST_SECONDS * limits.rate)
        self._limiters: dict[str, RateLimiter] = {}

    def get(self, name: str) -> RateLimiter:
        limiter = self._limiters.get(name)
        if limiter is None:
            own = Bucket(self._device_rate, BURST_SECONDS * self._device_rate)
            limiter = self._limiters[name] = RateLimiter(own, self._common)
        return limiter

    def delay_seconds(self, name: str) -> float:
        """Seconds in which nothing was read from a device."""
        limiter = self._limiters.get(name)
        return 0.0 if limiter is None else limiter.delay_seconds

    @property
    def total(self) -> float:
        """The same, summed over all devices."""
        return sum(limiter.delay_seconds for limiter in self._limiters.values())
