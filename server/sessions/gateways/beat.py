"""Whether the other end of a gateway's line is at work: each end pings all the time, whatever else it does.

An end of which nothing comes is given up. Event loops ping, so a gateway that takes up a large model, or a
leader that writes to a slow disk, is not taken for hung. Silence is counted in looks, so that who was busy or
asleep itself takes nobody else for it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

HANG = 6.0
"""Seconds without a byte after which the other end is given up. Devices take 8 s for that
(client/transport/liveness.py): when one comes elsewhere, its name is free."""

LOOK = 1.0
"""Seconds between two looks."""

_BEAT = HANG / 3


class Pings(Protocol):
    async def ping(self, message: bytes = b"") -> None: ...


async def beat(socket: Pings) -> None:
    """Ping until cancelled, or until nobody is there any more: whoever receives notices, too."""
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(_BEAT)
            await socket.ping()


async def silence(heard: Callable[[], int], seconds: float = HANG) -> None:
    """Return once nothing has come of the other end for so long; `heard` grows with what comes."""
    last, silent = -1, 0
    while silent * LOOK < seconds:
        await asyncio.sleep(LOOK)
        silent = silent + 1 if (now := heard()) == last else 0
        last = now
