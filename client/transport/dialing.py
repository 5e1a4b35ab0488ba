"""Starts sessions: it selects the server, sends the credentials and sets the message length.

Among several servers a device has its own, so that a fleet spreads over all of them. A device's name defines
the order in which it tries them. Each server is the first of an equal part of the devices. The devices of a
failed server spread over all others. A device on another server requests `/readyz` of its first one
periodically, and returns between two requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from random import Random

import aiohttp
from yarl import URL

from edgeflock.client.training.conversation import DeviceConversation
from edgeflock.client.training.terms import layout_of, longest_message
from edgeflock.client.transport.credentials import Credentials
from edgeflock.client.transport.liveness import HANG_SECONDS, Liveness
from edgeflock.client.transport.session import RecordSession
from edgeflock.shared.errors import SeveralRuns, Unauthorized, Unavailable
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.protocol.shown import detail_of, printable

log = logging.getLogger(__name__)

NOT_JOINED = (
    "the server does not let this device in: it has not joined, or was revoked; "
    "edgeflock client join URL TOKEN, with a token from the server's operator"
)

HEARTBEAT = 50.0
"""Seconds of silence after which the device pings. A ping and its answer take 8 bytes, a new session about a
thousand. Proxies and routers drop connections that are silent for a minute. It is less than the server's,
so only the device pings, also while it trains."""

_EXCHANGE_BYTES = 1 << 14
"""Bytes of a TLS connection with one request, including other traffic of a rate-limited connection."""

LONGEST_WELCOME = 1 << 24
"""Largest message in bytes before the layout is known. A layout with longer ones costs one reconnect."""

HOME_SECONDS = 30.0
"""Longest interval of checks in seconds. Intervals are random, so that devices do not return at once."""

_LONGEST_REASON = 1000
"""Bytes of a server's reason that are read."""

SEVERAL_RUNS = 300
"""The HTTP status (Multiple Choices) of a server that hosts several runs, where a request names none."""

_REFUSALS = 3
"""After this many "not ready" answers the server is a standby: the current one becomes the own one."""


class Dialer:
    """Holds the current session and starts the next one."""

    def __init__(
        self,
        servers: list[URL],
        credentials: Credentials,
        conversation: DeviceConversation,
        random: Random,
        *,
        memory: int,
        samples: int,
        rate: float,
        hang_seconds: float = HANG_SECONDS,
        home_seconds: float = HOME_SECONDS,
    ) -> None:
        """It tries several servers in this device's order.

        A model that needs more than `memory` bytes is refused. Other arguments: Link and RecordSession.
        """
        self._servers = order_servers(servers, conversation.hello.device)
        self._credentials, self.conversation = credentials, conversation
        self.liveness = Liveness(self._answers, hang_seconds)
        """Liveness of the session's server. Dialing has its own, `_dialed`."""
        self._dialed = Liveness(self._answers, hang_seconds)
        self._home = Home(self._servers[0], random, self._ready, home_seconds)
        self.http: aiohttp.ClientSession
        """Set before dialing."""
        self.session: RecordSession | None = None
        self.connections = 0
        self._memory, self._samples, self._rate = memory, samples, rate
        self._longest = LONGEST_WELCOME
        """Largest message in bytes that the socket accepts."""
        self._logged_state = ""
        """The logged state of the connection: "", "up", or "lost" since."""

    def server(self) -> URL:
        return self._servers[0]

    @property
    def address(self) -> str:
        """The server's URL without a password."""
        return str(self.server().with_user(None)).rstrip("/")

    async def dial(self) -> Welcome:
        """Start a session whose message limit fits the run."""
        session, welcome = await self._dialed.during(self._greet())
        layout = layout_of(welcome, self._memory)
        session.longest = max(longest_message(layout, sums=welcome.sums is not None), self._samples)
        if session.longest > self._longest:
            self._longest = session.longest
            await self.hang_up()
            return await self.dial()
        if self._logged_state != "up":
            again = "again " if self._logged_state else ""
            log.info("connected %sto %s, run %s", again, self.address, printable(welcome.run))
            self._logged_state = "up"
        return welcome

    async def lose(self) -> None:
        """Close the failed session and select the next server."""
        self._logged_state = "lost" if self._logged_state else ""
        self._servers = [*self._servers[1:], self._servers[0]]
        session, self.session = self.session, None
        if session is not None:
            await session.close(0)  # do not wait: the connection has failed

    async def hang_up(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        await self._home.close()
        await self.hang_up()

    def is_called_home(self) -> bool:
        """Return whether the device's own server is ready again, and select it for the next session."""
        if self.session is None or not self._home.should_return(self.server()):
            return False
        first = self._servers.index(self._home.url)
        self._servers = [*self._servers[first:], *self._servers[:first]]
        log.info("returns to its own server, %s", self.address)
        return True

    async def _answers(self, seconds: float) -> bool:
        return await self._status("livez", self.server(), seconds) is not None

    async def _ready(self, server: URL) -> bool | None:
        status = await self._status("readyz", server, HANG_SECONDS)
        return None if status is None else status == 200

    async def _status(self, path: str, server: URL, seconds: float) -> int | None:
        """Return a server's HTTP status on a separate connection; None: no answer in `seconds`."""
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(seconds + _EXCHANGE_BYTES / self._rate):
                async with self.http.get(server / path, allow_redirects=False) as response:
                    response.close()  # closes the connection too
                    return response.status
        return None

    async def _unavailable_reason(self) -> str:
        """Return the server's reason for taking no devices; empty: it does not say."""
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(HANG_SECONDS + _EXCHANGE_BYTES / self._rate):
                async with self.http.get(self.server() / "readyz", allow_redirects=False) as response:
                    answer = await response.content.read(_LONGEST_REASON)
                    response.close()
            return detail_of(answer, answer.decode("utf-8", "replace").strip())  # a standby's is JSON
        return ""

    async def _greet(self) -> tuple[RecordSession, Welcome]:
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
                raise Unauthorized(NOT_JOINED) from error
            if error.status == SEVERAL_RUNS:
                raise SeveralRuns(
                    f"{self.address} hosts several runs: name one, {self.address}/v1/runs/NAME"
                ) from error
            if error.status == Unavailable.status:
                reason = await self._unavailable_reason() or f"{self.address}/readyz says why"
                raise Unavailable(f"{self.address} takes no devices now: {reason}") from error
            raise
        session = self.session = RecordSession(socket, self._longest, self._rate, self.conversation)
        self.connections += 1
        hello = replace(self.conversation.hello, proof=self._credentials.proof())
        welcome = self.conversation.begin(await session.ask(wire.encode(hello)))
        await self._credentials.renew(self.http, self.server())
        return session, welcome


def order_servers(servers: Iterable[URL], device: str) -> list[URL]:
    """Return one device's order of servers: rendezvous hashing, after D. Thaler and C. Ravishankar, 1998."""
    return sorted(servers, key=lambda server: sha256(f"{device}\n{server}".encode()).digest())


class Home:
    """Checks whether one device should return to its own server."""

    def __init__(
        self,
        first: URL,
        random: Random,
        ready: Callable[[URL], Awaitable[bool | None]],
        seconds: float = HOME_SECONDS,
    ) -> None:
        """`ready` returns whether a server accepts devices; None: it does not answer."""
        self.url = first
        self._random, self._ready, self._seconds = random, ready, seconds
        self._due: float | None = None
        self._check: asyncio.Future[bool | None] | None = None
        self._refusals = 0

    def should_return(self, server: URL) -> bool:
        """Return whether a device connected to `server` should go back.

        It does not wait: a later call uses the result of a check that begins now.
        """
        now = asyncio.get_running_loop().time()
        if server == self.url:
            self._due, self._refusals = None, 0
        elif self._check is not None and self._check.done():
            check, self._check = self._check, None
            self._due = now + self._random.uniform(0, self._seconds)
            if (ready := check.result()) is None:
                return False
            self._refusals += not ready
            if self._refusals == _REFUSALS:
                self.url = server
            return ready
        elif self._due is None:
            self._due = now + self._random.uniform(0, self._seconds)
        elif now >= self._due and self._check is None:
            self._check = asyncio.ensure_future(self._ready(self.url))
        return False

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.wait([self._check])
