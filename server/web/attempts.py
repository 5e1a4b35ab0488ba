"""Recent failed logins, by address and by account, in memory only.

A valid token is accepted first and never waits, so guessing keeps nobody out.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable

COUNTED = 1000
"""The most addresses and accounts whose failures are counted. The oldest are dropped."""

ATTEMPTS, MINUTE = 10, 60.0

_UNKNOWN_ATTEMPTS = 10 * ATTEMPTS
"""The limit for unknown tokens, over all addresses. A few of them do not block another address, and the audit
log grows by at most so many lines a minute.
"""


class LoginAttempts:
    """ATTEMPTS a minute for each address and each account, and more for unknown accounts together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def count_failure(self, address: str, account: str) -> float:
        """Count a failure of both the address and the account.

        If one of them has reached its limit, do not count, but return the seconds to wait.
        """
        both = ("address", address), ("account", account)
        if (wait := max(self._wait(one) for one in both)) > 0:
            return wait
        for one in both:
            self._failed.setdefault(one, deque(maxlen=_limit(one))).append(self._clock())
            self._failed.move_to_end(one)
        while len(self._failed) > COUNTED:
            self._failed.popitem(last=False)
        return 0.0

    def _wait(self, one: tuple[str, str]) -> float:
        failed = self._failed.get(one)
        if failed is None or len(failed) < _limit(one):
            return 0.0
        return failed[0] + MINUTE - self._clock()


def _limit(one: tuple[str, str]) -> int:
    return _UNKNOWN_ATTEMPTS if one == ("account", "") else ATTEMPTS
