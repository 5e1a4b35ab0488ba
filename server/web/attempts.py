"""Logins that failed of late, by address and by account. In memory only.

A right token is looked at first, and never waits: whoever guesses keeps nobody out.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable

MOST = 1000
"""Addresses and accounts whose failures are counted; the oldest go."""

ATTEMPTS, MINUTE = 10, 60.0

_OF_NOBODY = 10 * ATTEMPTS
"""With tokens that nobody has, from all addresses together: so few say nothing against another address, and
the audit grows by so many lines a minute.
"""


class LoginAttempts:
    """ATTEMPTS in a minute, of each address and of each account, of nobody's account more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def fail(self, address: str, account: str) -> float:
        """Count a failure of both. If one of them has had its attempts: do not count, and return the seconds
        that it is to wait.
        """
        both = ("address", address), ("account", account)
        if (wait := max(self._wait(one) for one in both)) > 0:
            return wait
        for one in both:
            self._failed.setdefault(one, deque(maxlen=_most(one))).append(self._clock())
            self._failed.move_to_end(one)
        while len(self._failed) > MOST:
            self._failed.popitem(last=False)
        return 0.0

    def _wait(self, one: tuple[str, str]) -> float:
        failed = self._failed.get(one)
        if failed is None or len(failed) < _most(one):
            return 0.0
        return failed[0] + MINUTE - self._clock()


def _most(one: tuple[str, str]) -> int:
    return _OF_NOBODY if one == ("account", "") else ATTEMPTS
