"""Detects whether the other end of a gateway's line is alive. Each end pings all the time.

An end that sends nothing is given up. Event loops ping, so a gateway that loads a large model, or a leader
that writes to a slow disk, does not count as hung. Silence is counted in checks, so an end that was itself
busy or asleep does not blame the other one.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

HANG = 6.0
"""Seconds without a byte after which the other end is given up. A device gives up after 8 s
(client/transport/liveness.py), so its name is free when it connects elsewhere."""

CHECK_SECONDS = 1.0
"""Seconds between two checks."""

_PING_SECONDS = HANG / 3


class Pings(Protocol):
    async def ping(self, message: bytes = b"") -> None: ...


async def ping(socket: Pings) -> None:
    """Ping until cancelled or disconnected. The reader of the socket notices the loss, too."""
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(_PING_SECONDS)
            await socket.ping()


async def wait_for_silence(count_received: Callable[[], int], seconds: float = HANG) -> None:
    """Return once the other end sent nothing for so long. `count_received` returns its bytes so far."""
    last, silent = -1, 0
    while silent * CHECK_SECONDS < seconds:
        await asyncio.sleep(CHECK_SECONDS)
        silent = silent + 1 if (now := count_received()) == last else 0
        last = now
