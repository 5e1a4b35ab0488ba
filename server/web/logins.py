"""Browsers that have shown a token, and those that have shown too many that are none. In memory only.

A cookie holds the number of a login, which says nothing of the token and opens nothing once that is over.
"""

import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable

SECONDS = 8 * 3600.0
"""A login's life."""

MOST = 1000
"""Logins at a time, and addresses whose attempts are counted; the oldest go."""

ATTEMPTS, MINUTE = 10, 60.0


class Logins:
    """Number -> the token that was shown."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def begin(self, token: str) -> str:
        """A number that nobody guesses, of 256 bits."""
        number = secrets.token_urlsafe(32)
        self._kept[number] = token, self._clock() + SECONDS
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return number

    def token(self, number: str) -> str:
        """That of a login that lasts; of any other none, which is empty."""
        token, until = self._kept.get(number, ("", 0.0))
        if token and until <= self._clock():
            del self._kept[number]
            return ""
        return token

    def end(self, number: str) -> None:
        self._kept.pop(number, None)


class Attempts:
    """Tokens that nobody knows, of each address: ATTEMPTS in a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until another one is looked at."""
        failed = self._failed.get(address)
        if failed is None or len(failed) < ATTEMPTS:
            return 0.0
        return max(0.0, failed[0] + MINUTE - self._clock())

    def failed(self, address: str) -> None:
        self._failed.setdefault(address, deque(maxlen=ATTEMPTS)).append(self._clock())
        self._failed.move_to_end(address)
        while len(self._failed) > MOST:
            self._failed.popitem(last=False)
