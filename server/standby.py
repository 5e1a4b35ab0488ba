"""A server that is not the run's own yet, or no longer.

Of several servers with one journal one leads: it holds the journal's lease (ledger/stores/lease.py). The
others answer everybody that they stand by, so that devices, load balancers and people look further. So does a
server that has led and can no longer write its journal: once it can, it leads again, unless another one does.
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

from edgeflock.server.descent import Place
from edgeflock.server.hosting.line import line_of
from edgeflock.server.http.problem import problem
from edgeflock.server.ledger import UNREACHABLE, JournalLost, Outage, Unreachable
from edgeflock.server.listening import bound
from edgeflock.shared.errors import EdgeflockError, Unavailable
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

_LOOK = 0.2
"""Seconds between two looks at whether the run is this server's still."""

_ASK = 0.5
"""Seconds between two questions whether it may be."""


class StoodDown(EdgeflockError):
    """Whoever waited was told to go."""


class Standby:
    """Waits, in a thread, until it is told to go."""

    def __init__(self, place: Place | None = None, *, waits: bool = True) -> None:
        """`place` keeps the parameters of the run that it follows, whoever leads; without it it does not
        follow. Who does not wait leads at once, or ends; once it has led it waits.
        """
        self.place, self.waits = place, waits
        self._told = threading.Event()
        self.why = "it has just started"
        self.version: int | None = None
        """Up to which it follows the run; None: it does not."""
        self.sockets: list[socket.socket] | None = None
        """That this process listens with, leading or not, if it keeps them: then nobody is refused in
        between."""
        self._line: list[ssl.SSLContext | None] = []
        """What it listened with, once it has."""

    def wait(self, why: str, version: int | None = None) -> None:
        """As of `open_run`. Raises StoodDown."""
        self.version = version
        if why != self.why:
            log.info("standing by: %s", why)
        self.why = why
        if self._told.wait(_ASK):
            raise StoodDown("stopped while it stood by")

    @property
    def words(self) -> str:
        """Why it waits, and how far it is."""
        return self.why if self.version is None else f"{self.why}; it follows up to version {self.version:,}"

    def metrics(self) -> str:
        """What Prometheus is told, in its text format."""
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

    def line(self, config: Config) -> ssl.SSLContext | None:
        """What it listens with: of the key that the servers share. Raises ConfigError, StoodDown."""
        outage = Outage()
        while not self._line:
            try:
                self._line = [line_of(config, Path(config.run.directory))[0]]
            except (Unreachable, JournalLost) as error:
                outage.tell(error)
                self.wait(UNREACHABLE)
        return self._line[0]

    def led(self, tls: ssl.SSLContext | None) -> None:
        """It leads, and listens with `tls`."""
        self.waits, self._line = True, [tls]

    def leave(self) -> None:
        self._told.set()

    def close(self) -> None:
        """Listen no longer."""
        for one in self.sockets or ():
            one.close()


@asynccontextmanager
async def standing_by(config: Config, tls: ssl.SSLContext | None, standby: Standby) -> AsyncIterator[None]:
    """Tell everybody who asks that this server stands by, while the context lasts."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/livez":
            return web.Response(text="ok\n")
        if request.path == "/metrics":
            return web.Response(text=standby.metrics())
        return problem(Unavailable.status, Unavailable.code, f"this server stands by: {standby.words}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        assert runner.server is not None, "set up just now"
        async with bound(runner.server, config.run.host, config.run.port, standby.sockets, tls):
            yield
    finally:
        await runner.cleanup()


async def holding(lost: Callable[[], str]) -> None:
    """Look for as long as the run is this server's. Raises JournalLost once it is not."""
    while True:
        await asyncio.sleep(_LOOK)
        if why := lost():
            raise JournalLost(why)
