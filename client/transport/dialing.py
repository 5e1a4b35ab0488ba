"""How a session begins: at which of the servers, as whom, and with messages of what length."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import aiohttp
from yarl import URL

from edgeflock.client.training.terms import layout_of, longest_message
from edgeflock.client.transport.credentials import Credentials
from edgeflock.client.transport.downloads import NOT_KNOWN
from edgeflock.client.transport.home import HOME_SECONDS, Home, ordered
from edgeflock.client.transport.liveness import HANG_SECONDS, Liveness
from edgeflock.client.transport.session import RecordSession
from edgeflock.shared.errors import ServerAtFault, Unauthorized, Unavailable
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Hello, Record, Welcome
from edgeflock.shared.protocol.shown import shown

log = logging.getLogger(__name__)

HEARTBEAT = 50.0
"""Seconds of silence after which the device pings: 8 bytes with the answer, where a session that was lost
takes about a thousand to begin anew, and proxies and routers forget what is silent for a minute. It is less
than the server's, so that one end pings only, and the one that goes on while it trains."""

_EXCHANGE_BYTES = 1 << 14
"""Of a connection with TLS, a question and an answer, beside what else is on a line of a limited rate."""

LONGEST_WELCOME = 1 << 24
"""Bytes of a message before the layout is known. One that needs longer messages costs one more connection."""


class Dialer:
    """The session that there is, and how the next one comes."""

    def __init__(
        self,
        servers: list[URL],
        credentials: Credentials,
        hello: Hello,
        note: Callable[[Record], None],
        random: Random,
        *,
        memory: int,
        samples: int,
        rate: float,
        hang_seconds: float = HANG_SECONDS,
        home_seconds: float = HOME_SECONDS,
    ) -> None:
        """Of several servers the one that answers, in this device's order (home.py). A model that does not
        fit into `memory` bytes is refused; otherwise as Link and Session.
        """
        self._servers, self._credentials, self._note = ordered(servers, hello.device), credentials, note
        self.liveness = Liveness(self._answers, hang_seconds)
        """Of who is asked something; who is dialed is given up by itself."""
        self._dialed = Liveness(self._answers, hang_seconds)
        self._home = Home(self._servers[0], random, self._ready, home_seconds)
        self.http: aiohttp.ClientSession
        """Set before it dials."""
        self.hello = hello
        """Said at the begin of each session."""
        self.session: RecordSession | None = None
        self.connections = 0
        self._memory, self._samples, self._rate = memory, samples, rate
        self._longest = LONGEST_WELCOME
        """Bytes of a message that is read at all."""
        self._was = ""
        """Whether the line was said to be there, "up", or has been "lost" since."""

    def server(self) -> URL:
        """Whom it dials."""
        return self._servers[0]

    async def dial(self) -> Welcome:
        """A new session. Its messages may be as long as the run that it is of needs them."""
        session, welcome = await self._dialed.during(self._greeted())
        layout = layout_of(welcome, self._memory)
        session.longest = max(longest_message(layout), self._samples)
        if session.longest > self._longest:
            self._longest = session.longest
            await self.hang_up()
            return await self.dial()
        if self._was != "up":
            again = "again " if self._was else ""
            log.info("connected %sto %s, run %s", again, self.server().origin(), shown(welcome.run))
            self._was = "up"
        return welcome

    async def lose(self) -> None:
        """Something failed: the next server may do better."""
        self._was = "lost" if self._was else ""
        self._servers = [*self._servers[1:], self._servers[0]]
        session, self.session = self.session, None
        if session is not None:
            await session.close(0)  # whatever has failed, nobody waits for it

    async def hang_up(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        await self._home.close()
        await self.hang_up()

    def is_called_home(self) -> bool:
        """Whether another server is this device's, and takes it again: the next session is to be there."""
        if self.session is None or not self._home.calls(self.server()):
            return False
        first = self._servers.index(self._home.url)
        self._servers = [*self._servers[first:], *self._servers[:first]]
        log.info("goes back to %s", self.server().origin())
        return True

    async def _answers(self, seconds: float) -> bool:
        return await self._status("livez", self.server(), seconds) is not None

    async def _ready(self, server: URL) -> bool | None:
        status = await self._status("readyz", server, HANG_SECONDS)
        return None if status is None else status == 200

    async def _status(self, path: str, server: URL, seconds: float) -> int | None:
        """What a server answers in so many seconds, on a connection of its own; None: nothing."""
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(seconds + _EXCHANGE_BYTES / self._rate):
                async with self.http.get(server / path, allow_redirects=False) as response:
                    response.close()  # the connection, too
                    return response.status
        return None

    async def _greeted(self) -> tuple[RecordSession, Welcome]:
        try:
            socket = await self.http.ws_connect(
                self.server() / "v1/session",
                headers=self._credentials.headers,
                heartbeat=HEARTBEAT,
                autoping=False,
                max_msg_size=self._longest + 1,
                compress=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN) from error
            if error.status == Unavailable.status:
                where = self.server().origin()
                raise Unavailable(f"{where} takes no devices now ({where}/readyz says why)") from error
            raise
        session = self.session = RecordSession(socket, self._longest, self._rate, self._note)
        self.connections += 1
        await session.send(wire.encode(replace(self.hello, proof=self._credentials.proof())))
        welcome = await session.answer()
        if not isinstance(welcome, Welcome):
            raise ServerAtFault(f"the server answered a Hello with a {type(welcome).__name__}")
        self.hello = replace(self.hello, secret=welcome.secret)
        await self._credentials.renew(self.http, self.server())
        return session, welcome
