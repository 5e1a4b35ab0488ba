"""How a session begins: at which of the servers, as whom, and with messages of what length."""

import logging
from collections.abc import Callable
from dataclasses import replace

import aiohttp
from yarl import URL

from edgeflock.client.training.terms import layout_of, longest_message
from edgeflock.client.transport.credentials import Credentials
from edgeflock.client.transport.downloads import NOT_KNOWN
from edgeflock.client.transport.session import Session
from edgeflock.shared.errors import ServerAtFault, Unauthorized
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Hello, Record, Welcome
from edgeflock.shared.protocol.shown import shown

log = logging.getLogger(__name__)

HEARTBEAT = 50.0
"""Seconds of silence after which the device pings: 8 bytes with the answer, where a session that was lost
takes about a thousand to begin anew, and proxies and routers forget what is silent for a minute. It is less
than the server's, so that one end pings only, and the one that goes on while it trains."""

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
        *,
        memory: int,
        samples: int,
        rate: float,
    ) -> None:
        """Of several servers the one that answers: the others stand by. A model that does not fit into
        `memory` bytes is refused; otherwise as Link and Session.
        """
        self._servers, self._credentials, self._note = servers, credentials, note
        self.hello = hello
        """Said at the begin of each session."""
        self.session: Session | None = None
        self.connections = 0
        self._memory, self._samples, self._rate = memory, samples, rate
        self._longest = LONGEST_WELCOME
        """Bytes of a message that is read at all."""
        self._was = ""
        """Whether the line was said to be there, "up", or has been "lost" since."""

    def server(self) -> URL:
        """Whom it dials."""
        return self._servers[0]

    async def dial(self, http: aiohttp.ClientSession) -> Welcome:
        """A new session. Its messages may be as long as the run that it is of needs them."""
        session, welcome = await self._greeted(http)
        layout = layout_of(welcome, self._memory)
        session.longest = max(longest_message(layout), self._samples)
        if session.longest > self._longest:
            self._longest = session.longest
            await self.hang_up()
            return await self.dial(http)
        if self._was != "up":
            again = "again " if self._was else ""
            log.info("connected %sto %s, run %s", again, self.server().origin(), shown(welcome.run))
            self._was = "up"
        return welcome

    async def lose(self) -> None:
        """Something failed: the next server may do better."""
        self._was = "lost" if self._was else ""
        self._servers = [*self._servers[1:], self._servers[0]]
        await self.hang_up()

    async def hang_up(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    async def _greeted(self, http: aiohttp.ClientSession) -> tuple[Session, Welcome]:
        try:
            socket = await http.ws_connect(
                self.server() / "v1/session",
                headers=self._credentials.headers,
                heartbeat=HEARTBEAT,
                max_msg_size=self._longest + 1,
                compress=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN) from error
            raise
        session = self.session = Session(socket, self._longest, self._rate, self._note)
        self.connections += 1
        await session.send(wire.encode(replace(self.hello, proof=self._credentials.proof())))
        welcome = await session.answer()
        if not isinstance(welcome, Welcome):
            raise ServerAtFault(f"the server answered a Hello with a {type(welcome).__name__}")
        self.hello = replace(self.hello, secret=welcome.secret)
        await self._credentials.renew(http, self.server())
        return session, welcome
