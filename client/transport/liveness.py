"""Whether a server that says nothing is at work.

A device waits for an answer as long as it takes, if the server's process is alive. While nothing comes, the
device pings; if nothing comes of that either, it asks `/livez` on a connection of its own, which the server's
event loop answers whatever keeps this answer: a slow disk, a limit, a full line. A server that says nothing
there is given up for the next one.

Time is counted in looks of the device's own event loop, so that a device which was busy or asleep takes
nobody else for hung.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

HANG_SECONDS = 8.0
"""Seconds of silence after which a server that does not answer `/livez` is given up."""

_QUIET, _PONG, _CHECK = 3, 2, 3
"""Looks in those seconds: of silence until a ping, until its answer must be there, and that of /livez."""

_RARELY = 50
"""Looks between two pings at most: the longer an answer is waited for, the rarer they are."""

_MOST_TIMES = 8
"""How many times HANG_SECONDS it waits at most, where a question was never answered in less."""


class ServerHangs(ConnectionError):
    """Nothing comes of a server, though the line to it stands."""


class Peer(Protocol):
    """The session, while somebody listens there."""

    def heard(self) -> int:
        """More than before if there was a sign of life."""

    async def ping(self) -> None: ...


class Liveness:
    """Of the servers of one device."""

    def __init__(self, answers: Callable[[float], Awaitable[bool]], seconds: float = HANG_SECONDS) -> None:
        """`answers` asks the server at hand; whether it says anything in so many seconds."""
        self._answers, self._seconds = answers, seconds
        self._times = 1

    async def during(self, awaited: Awaitable[T], peer: Callable[[], Peer | None] = lambda: None) -> T:
        """What `awaited` comes to. Raises ServerHangs if the server is given up: for a question that is asked
        again it has twice as long, so that a line which only is slow carries it in the end.
        """
        task = asyncio.ensure_future(awaited)
        look = self._seconds / (_QUIET + _PONG + _CHECK) * self._times
        waited = silent = 0
        quiet, last = _QUIET, -1
        try:
            while not (await asyncio.wait([task], timeout=look))[0]:
                waited += 1
                silent += 1
                if (now := _heard(peer())) != last:
                    last, silent = now, int(last < 0)
                    quiet = max(_QUIET, min(waited // 10, _RARELY))
                elif silent == quiet and (there := peer()) is not None:
                    await there.ping()
                elif silent >= quiet + _PONG:
                    answers = await self._answers(_CHECK * look)
                    # What came meanwhile may not have been looked at: this process may have been asleep.
                    if not answers and not task.done() and _heard(peer()) == last:
                        self._times = min(2 * self._times, _MOST_TIMES)
                        raise ServerHangs(f"the server has said nothing for {(silent + _CHECK) * look:.0f} s")
                    silent, quiet = 0, max(_QUIET, min(waited // 10, _RARELY))
            result = task.result()
            self._times = 1
            return result
        finally:
            task.cancel()
            await asyncio.wait([task])


def _heard(peer: Peer | None) -> int:
    return 0 if peer is None else peer.heard()
