"""Detects whether the other end of a gateway's connection is alive. Each end pings all the time.

An end disconnects if nothing comes from the other. The event loop pings, so a gateway that loads a large
model, or a leader that writes to a slow disk, does not count as hung. Silence is counted in checks, so an end
that was itself busy or asleep does not disconnect a living one.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

HANG_SECONDS = 6.0
"""Seconds without a byte after which an end disconnects. A device does so only after 8 s
(client/transport/liveness.py). So its name is free when it connects elsewhere."""

CHECK_SECONDS = 1.0
"""Seconds between two checks."""

_PING_SECONDS = HANG_SECONDS / 3


class PingSocket(Protocol):
    async def ping(self, message: bytes = b"") -> None: ...


async def ping(socket: PingSocket) -> None:
    """Ping until cancelled or disconnected. Raises nothing: the socket's reader notices the loss, too."""
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(_PING_SECONDS)
            await socket.ping()


async def wait_for_silence(count_received: Callable[[], int]) -> None:
    """Return once nothing came for HANG_SECONDS. `count_received` returns the bytes received so far."""
    last, silent = -1, 0
    while silent * CHECK_SECONDS < HANG_SECONDS:
        await asyncio.sleep(CHECK_SECONDS)
        silent = silent + 1 if (now := count_received()) == last else 0
        last = now
