"""A standby: a server that does not lead the run yet, or no longer leads it.

Of several servers with one journal, one leads: it holds the journal's lease (database/lease.py). The
others answer every request with "stands by", so that clients try another server. A leader that can no longer
write its journal becomes a standby. It leads again once it can write, unless another server leads by then.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from edgeflock.server.connections.listening import bind
from edgeflock.server.database import UNREACHABLE, JournalLost, Outage, Unreachable
from edgeflock.server.descent import Place
from edgeflock.server.hosting.tls import server_context
from edgeflock.server.http.bodies import problem
from edgeflock.shared.errors import EdgeflockError, Unavailable
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2
"""Seconds between two checks that this server still leads the run."""

_RETRY_SECONDS = 0.5
"""Seconds between two attempts to become the leader."""


class StandbyStopped(EdgeflockError):
    """A standby was stopped while it waited."""


class Standby:
    """Waits, in a thread, until `stop` is called."""

    def __init__(self, place: Place | None = None, *, waits: bool = True) -> None:
        """`place` stores the parameters of the run while this server follows it; None: it does not.

        With `waits` false, the server leads at once or ends. After it has led, it waits.
        """
        self.place, self.waits = place, waits
        self._stopped = threading.Event()
        self.reason = "it has just started"
        self.version: int | None = None
        """The version up to which it follows the run; None: it does not follow."""
        self.sockets: list[socket.socket] | None = None
        """The listening sockets, shared between standing by and leading, so that no connection is refused
        in between. None: they are not shared."""
        self._tls: list[ssl.SSLContext | None] = []
        """The TLS context of the listening sockets, in a list; empty until it is known."""

    def wait(self, reason: str, version: int | None = None) -> None:
        """Wait before the next attempt of `open_run` to lead. Raises StandbyStopped."""
        self.version = version
        if reason != self.reason:
            log.info("standing by: %s", reason)
        self.reason = reason
        if self._stopped.wait(_RETRY_SECONDS):
            raise StandbyStopped("stopped while it waited to lead")

    @property
    def message(self) -> str:
        """Why the server waits, and up to which version it follows."""
        progress = "" if self.version is None else f"; it follows up to version {self.version:,}"
        return self.reason + progress

    def metrics(self) -> str:
        """Return the metrics of a standby in Prometheus' text format."""
        lines = [
            "# HELP edgeflock_leads 1 where the run is hosted, 0 where a server stands by.",
            "# TYPE edgeflock_leads gauge",
            "edgeflock_leads 0",
        ]
        if self.version is not None:
            lines += [
                "# HELP edgeflock_standby_version The version up to which a standby follows the run.",
                "# TYPE edgeflock_standby_version gauge",
                f"edgeflock_standby_version {self.version}",
            ]
        return "\n".join(lines) + "\n"

    def tls(self, config: Config) -> ssl.SSLContext | None:
        """Return the TLS context, from the key that the servers share. Raises ConfigError, StandbyStopped."""
        outage = Outage()
        while not self._tls:
            try:
                self._tls = [server_context(config, Path(config.server.directory))[0]]
            except (Unreachable, JournalLost) as error:
                outage.report(error)
                self.wait(UNREACHABLE)
        return self._tls[0]

    def start_leading(self, tls: ssl.SSLContext | None) -> None:
        """Record that the server leads, and listens with `tls`."""
        self.waits, self._tls = True, [tls]

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """Close the listening sockets."""
        for one in self.sockets or ():
            one.close()


@asynccontextmanager
async def serve_standby(config: Config, tls: ssl.SSLContext | None, standby: Standby) -> AsyncIterator[None]:
    """Answer every request with "this server stands by" while the context lasts."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/livez":
            return web.Response(text="ok\n")
        if request.path == "/metrics":
            return web.Response(text=standby.metrics())
        return problem(Unavailable.status, Unavailable.code, f"this server stands by: {standby.message}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        assert runner.server is not None, "set up just now"
        async with bind(runner.server, config.server.host, config.server.port, standby.sockets, tls):
            yield
    finally:
        await runner.cleanup()


async def watch_lease(loss_reason: Callable[[], str]) -> None:
    """Check periodically that this server still leads the run. Raises JournalLost once it does not."""
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        if reason := loss_reason():
            raise JournalLost(reason)
