"""What systemd is told, where it started this process (sd_notify(3)): that it is ready, alive, how it does.

Elsewhere NOTIFY_SOCKET is not set, and nobody is told anything.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress


def is_supervised(environ: Mapping[str, str]) -> bool:
    """Whether somebody is there to be told."""
    return environ.get("NOTIFY_SOCKET", "")[:1] in ("/", "@")


def tell(environ: Mapping[str, str], **said: object) -> None:
    """One datagram of e.g. READY=1, STATUS=connected. A supervisor that is gone is no reason to end."""
    if not is_supervised(environ):
        return
    place = environ["NOTIFY_SOCKET"]
    address = "\0" + place[1:] if place[0] == "@" else place  # "@": of Linux's abstract names
    # A line each, so that a text with another one in it cannot say more than it is to.
    lines = (f"{key}={' '.join(str(value).split())}" for key, value in said.items())
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.setblocking(False)
        line.sendto("\n".join(lines).encode(), address)


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """How often to say that it is alive: twice in WatchdogSec. None: nobody asks this process."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "")) / 2e6
    except ValueError:
        return None
    return seconds if seconds > 0 else None


class LastLine(logging.Handler):
    """Tells what was logged last: for a device that is how its line to the server is."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(logging.INFO)
        self._environ = environ

    def emit(self, record: logging.LogRecord) -> None:
        tell(self._environ, STATUS=record.getMessage())


@asynccontextmanager
async def supervised(status: Callable[[], str] | None = None) -> AsyncIterator[None]:
    """Ready from here to the end of the context, and alive as long as the event loop runs; `status` is told
    as often as that.
    """
    environ = os.environ
    tell(environ, READY=1, **_status(status))
    seconds = watchdog_seconds(environ, os.getpid())

    async def keep_telling() -> None:
        while seconds is not None:
            tell(environ, WATCHDOG=1, **_status(status))
            await asyncio.sleep(seconds)

    telling = asyncio.create_task(keep_telling())
    try:
        yield
    finally:
        tell(environ, STOPPING=1)
        telling.cancel()


def _status(status: Callable[[], str] | None) -> dict[str, str]:
    return {} if status is None else {"STATUS": status()}
