"""Rate limits for processor time and bytes."""

_SAVED = 0.25
"""Unspent allowance accumulates for this many seconds."""


class Allowance:
    """A rate limit that all callers share. Spending above the rate returns a time to wait.

    In any t seconds, at most rate * (t + 0.25) is spent, plus the amount of one call.
    """

    def __init__(self, rate: float, now: float) -> None:
        """Args: `rate` in any unit per second; `now` in seconds."""
        self._rate = rate
        self.begin(now)

    def begin(self, now: float) -> None:
        """Reset: nothing is spent or saved before `now`."""
        self._balance, self._updated = 0.0, now

    def spend(self, amount: float, now: float) -> float:
        """Record `amount`, spent since the last call. Return the seconds to wait until the rate covers it."""
        self._balance = min(_SAVED * self._rate, self._balance + (now - self._updated) * self._rate - amount)
        self._updated = now
        return max(0.0, -self._balance / self._rate)
