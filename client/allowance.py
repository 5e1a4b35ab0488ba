"""What may be spent a second: of processor time, of bytes."""

_SAVED = 0.25
"""Seconds that an allowance which is not spent is saved for."""


class Allowance:
    """So much a second, whoever spends it: what is spent beyond it has to be waited for.

    Within any t seconds no more is spent than t + 0.25 of them are worth, and what is told of at once.
    """

    def __init__(self, rate: float, now: float) -> None:
        """`rate` of any unit a second; `now` in seconds."""
        self._rate = rate
        self.begin(now)

    def begin(self, now: float) -> None:
        """Nothing has been spent before `now`."""
        self._balance, self._at = 0.0, now

    def spend(self, amount: float, now: float) -> float:
        """Seconds to wait until `amount`, which was spent since the last call, was worth it."""
        self._balance = min(_SAVED * self._rate, self._balance + (now - self._at) * self._rate - amount)
        self._at = now
        return max(0.0, -self._balance / self._rate)
