"""The server of several that a device belongs to, so that a fleet with one list spreads over all of it.

The order in which a device tries them follows from its name: each server is the first of an equal part of the
devices, and those of one that fails spread over all others. A device that had to go elsewhere asks its first
one for `/readyz` now and then, and goes back between two questions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from random import Random

from yarl import URL

HOME_SECONDS = 30.0
"""Seconds between two looks at most: each is drawn, so that devices do not return in step."""

_REFUSALS = 3
"""Looks at a server that answers, and is not ready: it stands by, and the one at hand is the device's now."""


def ordered(servers: Iterable[URL], device: str) -> list[URL]:
    """In the order of one device: by rendezvous hashing, after D. Thaler and C. Ravishankar, 1998."""
    return sorted(servers, key=lambda server: sha256(f"{device}\n{server}".encode()).digest())


class Home:
    """Of one device."""

    def __init__(
        self,
        first: URL,
        random: Random,
        ready: Callable[[URL], Awaitable[bool | None]],
        seconds: float = HOME_SECONDS,
    ) -> None:
        """`ready` asks a server whether it takes devices; None: it does not answer."""
        self.url = first
        self._random, self._ready, self._seconds = random, ready, seconds
        self._due: float | None = None
        self._looking: asyncio.Task[bool | None] | None = None
        self._refusals = 0

    def calls(self, server: URL) -> bool:
        """Whether a device that is connected to `server` should go back. It waits for nothing: a look that
        begins now is over by a later call.
        """
        now = asyncio.get_running_loop().time()
        if server == self.url:
            self._due, self._refusals = None, 0
        elif self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            self._due = now + self._random.uniform(0, self._seconds)
            if (ready := looked.result()) is None:
                return False
            self._refusals += not ready
            if self._refusals == _REFUSALS:
                self.url = server
            return ready
        elif self._due is None:
            self._due = now + self._random.uniform(0, self._seconds)
        elif now >= self._due and self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return False

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self) -> bool | None:
        return await self._ready(self.url)
