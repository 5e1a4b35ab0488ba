"""Checks whether a silent server is alive.

A device waits for an answer as long as the server's process is alive. During silence it pings. Without a pong
it requests `/livez` on a separate connection. The server's event loop answers that even if a slow disk, a
limit or a full connection delays the answer. A server without an answer there is given up for the next one.

Time is counted in wakeups of the device's own event loop, so that a busy or suspended device does not blame
the server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

HANG_SECONDS = 8.0
"""Seconds of silence after which a server that does not answer `/livez` is given up."""

_QUIET, _PONG, _CHECK = 3, 2, 3
"""Wakeups in HANG_SECONDS: of silence until a ping, until the pong is due, and until /livez is due."""

_MAX_QUIET = 50
"""Most wakeups between two pings. Their interval grows with the wait for an answer."""

_MAX_FACTOR = 8
"""Largest factor of HANG_SECONDS, for a request that was never answered in less."""


class ServerHangs(ConnectionError):
    """The server is silent, though the connection is open."""


class Peer(Protocol):
    """The session, while it is read."""

    def count_signs(self) -> int:
        """Return a count that grows with each sign of life."""

    async def ping(self) -> None: ...


class Liveness:
    """Checks the servers of one device."""

    def __init__(self, answers: Callable[[float], Awaitable[bool]], seconds: float = HANG_SECONDS) -> None:
        """`answers` requests `/livez` and returns whether the server answers within the given seconds."""
        self._answers, self._seconds = answers, seconds
        self._factor = 1

    async def during(self, awaited: Awaitable[T], peer: Callable[[], Peer | None] = lambda: None) -> T:
        """Return the result of `awaited`. Raises ServerHangs if the server is given up.

        Each repetition of a request waits twice as long, so that a slow connection succeeds in the end.
        """
        task = asyncio.ensure_future(awaited)
        look = self._seconds / (_QUIET + _PONG + _CHECK) * self._factor
        waited = silent = 0
        quiet, last = _QUIET, -1
        try:
            while not (await asyncio.wait([task], timeout=look))[0]:
                waited += 1
                silent += 1
                if (now := _count_signs(peer())) != last:
                    last, silent = now, int(last < 0)
                    quiet = max(_QUIET, min(waited // 10, _MAX_QUIET))
                elif silent == quiet and (session := peer()) is not None:
                    await session.ping()
                elif silent >= quiet + _PONG:
                    answers = await self._answers(_CHECK * look)
                    # Check again for an answer: this process may have been suspended.
                    if not answers and not task.done() and _count_signs(peer()) == last:
                        self._factor = min(2 * self._factor, _MAX_FACTOR)
                        raise ServerHangs(f"the server has sent nothing for {(silent + _CHECK) * look:.0f} s")
                    silent, quiet = 0, max(_QUIET, min(waited // 10, _MAX_QUIET))
            result = task.result()
            self._factor = 1
            return result
        finally:
            task.cancel()
            await asyncio.wait([task])


def _count_signs(peer: Peer | None) -> int:
    return 0 if peer is None else peer.count_signs()
