"""Messages to systemd, if it started this process (sd_notify(3)): ready, alive, and the status.

Without systemd, NOTIFY_SOCKET is not set, and no message is sent.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress


def is_supervised(environ: Mapping[str, str]) -> bool:
    """Return whether a supervisor receives messages."""
    return environ.get("NOTIFY_SOCKET", "")[:1] in ("/", "@")


def notify(environ: Mapping[str, str], **values: object) -> None:
    """Send a datagram, e.g. READY=1, STATUS=connected. A missing supervisor is not an error."""
    if not is_supervised(environ):
        return
    path = environ["NOTIFY_SOCKET"]
    address = "\0" + path[1:] if path[0] == "@" else path  # "@": of Linux's abstract names
    # Write one line for each, so that a line break in a text cannot add a message.
    lines = (f"{key}={' '.join(str(value).split())}" for key, value in values.items())
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.setblocking(False)
        connection.sendto("\n".join(lines).encode(), address)


def watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """Return the seconds between signs of life: half of WatchdogSec, or None without a watchdog."""
    if environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "")) / 2e6
    except ValueError:
        return None
    return seconds if seconds > 0 else None


class LastLine(logging.Handler):
    """Holds the last log message. On a device, it describes the connection to the server."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(logging.INFO)
        self._environ = environ

    def emit(self, record: logging.LogRecord) -> None:
        notify(self._environ, STATUS=record.getMessage())


@asynccontextmanager
async def supervised(status: Callable[[], str] | None = None) -> AsyncIterator[None]:
    """Report ready until the end of the context, and alive while the event loop runs.

    Report `status` as often.
    """
    environ = os.environ
    notify(environ, READY=1, **_status(status))
    seconds = watchdog_seconds(environ, os.getpid())

    async def keep_notifying() -> None:
        while seconds is not None:
            notify(environ, WATCHDOG=1, **_status(status))
            await asyncio.sleep(seconds)

    notifying = asyncio.create_task(keep_notifying())
    try:
        yield
    finally:
        notify(environ, STOPPING=1)
        notifying.cancel()


def _status(status: Callable[[], str] | None) -> dict[str, str]:
    return {} if status is None else {"STATUS": status()}
