"""Selects a device's own server among several, so that a fleet spreads over all of them.

A device's name defines the order in which it tries them. Each server is the first of an equal part of the
devices. The devices of a failed server spread over all others. A device on another server requests `/readyz`
of its first one periodically, and returns between two requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from random import Random

from yarl import URL

HOME_SECONDS = 30.0
"""Longest interval of checks in seconds. Intervals are random, so that devices do not return at once."""

_REFUSALS = 3
"""After this many "not ready" answers the server is a standby: the current one becomes the own one."""


def order_servers(servers: Iterable[URL], device: str) -> list[URL]:
    """Return one device's order of servers: rendezvous hashing, after D. Thaler and C. Ravishankar, 1998."""
    return sorted(servers, key=lambda server: sha256(f"{device}\n{server}".encode()).digest())


class Home:
    """Checks whether one device should return to its own server."""

    def __init__(
        self,
        first: URL,
        random: Random,
        ready: Callable[[URL], Awaitable[bool | None]],
        seconds: float = HOME_SECONDS,
    ) -> None:
        """`ready` returns whether a server accepts devices; None: it does not answer."""
        self.url = first
        self._random, self._ready, self._seconds = random, ready, seconds
        self._due: float | None = None
        self._check: asyncio.Future[bool | None] | None = None
        self._refusals = 0

    def should_return(self, server: URL) -> bool:
        """Return whether a device connected to `server` should go back.

        It does not wait: a later call uses the result of a check that begins now.
        """
        now = asyncio.get_running_loop().time()
        if server == self.url:
            self._due, self._refusals = None, 0
        elif self._check is not None and self._check.done():
            check, self._check = self._check, None
            self._due = now + self._random.uniform(0, self._seconds)
            if (ready := check.result()) is None:
                return False
            self._refusals += not ready
            if self._refusals == _REFUSALS:
                self.url = server
            return ready
        elif self._due is None:
            self._due = now + self._random.uniform(0, self._seconds)
        elif now >= self._due and self._check is None:
            self._check = asyncio.ensure_future(self._ready(self.url))
        return False

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait([self._check])
