"""The session from the device's side: ask, and get an answer, however often the line drops in between.

A request that got no answer is sent again after a reconnect. That is safe for each: a Pull changes nothing,
and an Update keeps its sequence number, so that the server answers a second one with the first one's receipt.

A server is believed no more than it must be. An answer is no longer than the run's layout can need, says what
an answer can say, and comes from where it was asked; else the device's part ends with a ServerAtFault.
"""

import asyncio
import logging
import math
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TypeVar

import aiohttp
from yarl import URL

from edgeflock.client.downloads import NOT_KNOWN, Downloads
from edgeflock.client.first_model import Kept
from edgeflock.client.identity import Identity
from edgeflock.client.joining import renew, urls_of
from edgeflock.client.lines import Lines
from edgeflock.client.retrying import ANSWER_SECONDS, Retries
from edgeflock.client.training.terms import layout_of, longest_message
from edgeflock.shared.errors import (
    REFUSALS,
    ConfigError,
    EdgeflockError,
    FrameTooLarge,
    Refused,
    RunOver,
    RunReplaced,
    ServerAtFault,
    SessionRefused,
    Unauthorized,
)
from edgeflock.shared.identity import (
    CHALLENGE,
    CHALLENGE_BYTES,
    NO_PIN,
    ROTATE,
    from_text,
    session_words,
    sign,
    tls_for,
    with_certificate,
)
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    LONGEST_REASON,
    Facts,
    Goodbye,
    Hello,
    Model,
    Over,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    Stop,
    Task,
    Telemetry,
    Update,
    Welcome,
)
from edgeflock.shared.protocol.shown import shown

R = TypeVar("R")

log = logging.getLogger(__name__)

HEARTBEAT = 50.0
"""Seconds of silence after which the device pings: 8 bytes with the answer, where a session that was lost
takes about a thousand to begin anew, and proxies and routers forget what is silent for a minute. It is less
than the server's, so that one end pings only, and the one that goes on while it trains."""

LONGEST_WELCOME = 1 << 24
"""Bytes of a message before the layout is known. One that needs longer messages costs one more connection."""

_PLENTY = 1 << 40


class Link:
    """A device's line to its server. Use as an async context manager."""

    def __init__(
        self,
        server: str,
        identity: Identity | None,
        hello: Hello,
        random: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        memory: int = _PLENTY,
        samples: int = 0,
        bandwidth: float | None = None,
        insecure: bool = False,
        renewed: Callable[[Identity], None] = lambda identity: None,
    ) -> None:
        """`server` is the server's http(s) URL; of several, with commas between them, the one that answers:
        the others stand by. Raises ConfigError if it is none, or if it is plain HTTP beyond this machine and
        not `insecure`. Without an identity only a run that is open lets this device
        in; `renewed` is told of another one that the server wants it to have.

        A model that does not fit into `memory` bytes is refused, and Samples of more than `samples` bytes.
        Both ways together no more than `bandwidth` bytes a second pass.
        """
        self._servers = urls_of(server)
        pin = b"" if identity is None else identity.pin
        for url in reversed(self._servers):
            self._tls = tls_for(
                url.scheme, url.host or "", pin, insecure=insecure, of_its_own=identity is not None
            )
        self._identity, self._renewed = identity, renewed
        self._challenge, self._is_to_renew = b"", False
        self._headers: dict[str, str] = {}
        self._show()
        self._hello = hello
        self._retries = Retries(str(url), random, sleep, self._lose)
        self._downloads = Downloads(self._server, self._headers, hello.device, self._retries)
        self._http: aiohttp.ClientSession | None = None
        self._lines: Lines | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._run = ""
        self._injects = self._tasks = False
        self._was = ""
        """Whether the line was said to be there, "up", or has been "lost" since."""
        self._over = False
        """Whether the server said that the round of the model that the device has is over."""
        self._listener: Callable[[Samples], None] = lambda samples: None
        self._memory, self._samples, self._bandwidth = memory, samples, bandwidth
        self._longest = LONGEST_WELCOME
        """Bytes of a message that is read at all, and"""
        self._longest_answer = 0
        """that is an answer in this run."""
        self.connections = 0

    async def __aenter__(self) -> "Link":
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)
        redirected = aiohttp.TraceConfig()
        redirected.on_request_redirect.append(_not_elsewhere)
        redirected.on_request_end.append(self._read_headers)
        self._lines = None if self._bandwidth is None else Lines(self._bandwidth, self._tls)
        self._http = aiohttp.ClientSession(
            connector=self._lines or aiohttp.TCPConnector(ssl=self._tls),
            timeout=timeout,
            trace_configs=[redirected],
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hang_up()
        if self._http is not None:
            await self._http.close()
        if self._lines is not None:
            await self._lines.carried()

    async def join(self) -> Welcome:
        """Connect, for as long as it takes. Raises SessionRefused if the server will not have this device,
        ConfigError if there is no server that it could connect to.
        """
        await self._hang_up()
        self._run = ""
        welcome = await self._retries.until_answered(self._dial)
        self._run = welcome.run
        return welcome

    async def push(self, update: Update) -> Receipt:
        """The receipt for `update`, which is then durable. Raises Refused, RunOver or RunReplaced."""
        return await self._ask(update, Receipt)

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        """The current model, or the parameters from `start` up to `stop` of it. Raises Refused, RunOver or
        RunReplaced.
        """
        return await self._ask(Pull(base, held, start, stop), Model)

    async def offer(self, update: Update) -> Task:
        """What came of `update`, and what to compute next. Raises Refused, RunOver or RunReplaced."""
        return await self._ask(update, Task)

    async def task(self) -> Task | None:
        """What to compute next, once there is something; None if the round is over, or the line lost: then
        the model is to be pulled. Raises RunOver.
        """
        return None if self._over or self._socket is None else await self._told(self._socket)

    async def over(self) -> None:
        """Return once the round is over in which the device computes. Raises RunOver."""
        socket = self._socket
        if not self._over and socket is not None and await self._told(socket) is not None:
            raise ServerAtFault("the server sent a Task while the last one was being computed")
        if not self._over:  # the line is lost: what is computed is offered on the next one
            await asyncio.get_running_loop().create_future()

    async def _told(self, socket: aiohttp.ClientWebSocketResponse) -> Task | None:
        """The next Task that is not asked for, None if the round's Over comes first, or the line is lost."""
        try:
            while not self._over:
                record = await self._next(socket)
                if isinstance(record, Task):
                    return record
                self._note(record)
        except (ConnectionError, aiohttp.ClientError, SessionRefused):
            await self._hang_up()  # whatever it is, the next question meets it
        return None

    async def share(self, samples: Samples) -> None:
        """Send samples to the others, if the run still wants that. They are lost if the line is."""
        if self._socket is not None and self._injects:
            with suppress(ConnectionError):  # the next question notices
                await self._socket.send_bytes(wire.encode(samples))

    async def tell(self, facts: Facts) -> None:
        """Tell how the device does, if there is a line."""
        if self._socket is not None:
            with suppress(ConnectionError):  # the next question notices
                await self._socket.send_bytes(wire.encode(Telemetry(facts)))

    async def leave(self, reason: str) -> None:
        """Tell why this device leaves, if there is a line."""
        if self._socket is not None:
            octets = wire.encode(Goodbye(shown(reason)[:LONGEST_REASON]))
            with suppress(ConnectionError):
                await self._socket.send_bytes(octets)

    def listen(self, listener: Callable[[Samples], None]) -> None:
        """Hand what others share to `listener`: it comes along with answers."""
        self._listener = listener

    async def graph(self, kind: str) -> bytes:
        """The run's "step" or "evaluation" as an ONNX graph (Downloads.graph)."""
        return await self._downloads.graph(self._opened, kind)

    async def load(self, kept: Kept) -> bool:
        """Bring what is missing of a first model; False if the server has it no longer (Downloads.load)."""
        return await self._downloads.load(self._opened, kept)

    def speak_as(self, layout: bytes) -> None:
        """Name the layout in every Hello from now on, so that a server with another model refuses it."""
        self._hello = replace(self._hello, layout=layout)

    async def introduce(self, facts: Facts) -> None:
        """Tell the server `facts` about this device, in a new session if it was told others."""
        if facts != self._hello.facts:
            self._hello = replace(self._hello, facts=facts)
            await self._hang_up()

    @property
    def _opened(self) -> aiohttp.ClientSession:
        assert self._http is not None, "use Link as an async context manager"
        return self._http

    async def _ask(self, question: Record, expected: type[R]) -> R:
        octets = wire.encode(question)
        self._fits(len(octets))

        async def attempt() -> R:
            socket = await self._connected()
            with suppress(ConnectionError):  # if the server hung up, what it said last tells why
                await socket.send_bytes(octets)
            answer = await self._receive(socket)
            if not isinstance(answer, expected):
                raise ServerAtFault(
                    f"the server answered a {type(question).__name__} with a {type(answer).__name__}"
                )
            return answer

        return await self._retries.until_answered(attempt)

    def _fits(self, size: int) -> None:
        """Raises ConfigError if a message takes so long that the line would count as dead meanwhile."""
        least = size / (HEARTBEAT / 2)
        if self._bandwidth is not None and self._bandwidth < least:
            raise ConfigError(
                f"client.bandwidth = {self._bandwidth / 1e3:g}kB/s: a message of this run has {size:,} "
                f"bytes, which needs {math.ceil(least / 1e3)}kB/s; allow that, or leave client.bandwidth out"
            )

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        if self._socket is None:
            welcome = await self._dial()
            if welcome.run != self._run:
                raise RunReplaced(f"the server now hosts run {welcome.run}")
        assert self._socket is not None
        return self._socket

    async def _dial(self) -> Welcome:
        """A new session. Its messages may be as long as the run that it is of needs them."""
        welcome = await self._connect()
        layout = layout_of(welcome, self._memory)
        self._longest_answer = max(longest_message(layout), self._samples)
        if self._longest_answer > self._longest:
            self._longest = self._longest_answer
            await self._hang_up()
            return await self._dial()
        if self._was != "up":
            again = "again " if self._was else ""
            log.info("connected %sto %s, run %s", again, self._server().origin(), shown(welcome.run))
            self._was = "up"
        self._injects = welcome.alpha > 0 and welcome.beta > 0
        self._tasks, self._over = welcome.tasks, False
        return welcome

    async def _connect(self) -> Welcome:
        self._longest_answer = self._longest
        try:
            socket = await self._opened.ws_connect(
                self._server() / "v1/session",
                headers=self._headers,
                heartbeat=HEARTBEAT,
                max_msg_size=self._longest + 1,
                compress=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN) from error
            raise
        self._socket = socket
        self.connections += 1
        await socket.send_bytes(wire.encode(replace(self._hello, proof=self._proof())))
        welcome = await self._receive(socket)
        if not isinstance(welcome, Welcome):
            raise ServerAtFault(f"the server answered a Hello with a {type(welcome).__name__}")
        self._hello = replace(self._hello, secret=welcome.secret)
        await self._renew()
        return welcome

    def _show(self) -> None:
        """Every request shows the credential, downloads too, and TLS the certificate."""
        identity = self._identity
        if identity is not None:
            self._headers["Authorization"] = f"Bearer {identity.credential}"
            if identity.certificate and isinstance(self._tls, ssl.SSLContext):
                with_certificate(self._tls, identity.key, identity.certificate)

    async def _read_headers(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, ended: aiohttp.TraceRequestEndParams
    ) -> None:
        """What the answer that begins a session asks for."""
        with suppress(ValueError):
            self._challenge = from_text(ended.response.headers.get(CHALLENGE, ""))
        self._is_to_renew = ROTATE in ended.response.headers

    def _proof(self) -> bytes:
        """Of this device's key, if the server asks for one."""
        identity = self._identity
        if identity is None or len(self._challenge) != CHALLENGE_BYTES:
            return b""
        pin = identity.pin or NO_PIN
        return sign(identity.key, session_words(self._challenge, identity.realm, pin, identity.name))

    async def _renew(self) -> None:
        """Get another key and credential, if the server wants that; if it fails, the next session tries."""
        if self._identity is None or not self._is_to_renew:
            return
        try:
            identity = await renew(self._opened, self._identity, self._server())
        except EdgeflockError as error:
            log.warning("no new credential: %s", shown(str(error)))
            return
        self._renewed(identity)
        self._identity = identity
        self._show()

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> Record:
        """The next record that is an answer; samples before it go to the listener. Raises what the server
        refused, or ConnectionError if it hung up.
        """
        seconds = 0.0 if self._bandwidth is None else self._longest_answer / self._bandwidth
        async with asyncio.timeout(ANSWER_SECONDS + seconds):
            while isinstance(record := await self._next(socket), Samples | Over):
                self._note(record)
        if isinstance(record, Model):
            self._over = False
        return record

    def _note(self, record: Record) -> None:
        """What comes without being asked for, between answers."""
        if isinstance(record, Samples):
            if not self._hello.shares:
                raise ServerAtFault("the server sent samples, but this device does not share any")
            self._listener(record)
        elif isinstance(record, Over) and self._tasks:
            self._over = True
        else:
            raise ServerAtFault(f"the server sent a {type(record).__name__} that was not asked for")

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> Record:
        message = await socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            return self._read(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            raise ServerAtFault("the server sent a text message, where all are binary")
        if message.type is aiohttp.WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            raise ServerAtFault(f"the server broke the WebSocket protocol: {shown(str(message.data))}")
        # The close frame itself: the socket's own close_code is 1006 once the line is gone.
        code = message.data if message.type is aiohttp.WSMsgType.CLOSE else socket.close_code
        if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            raise FrameTooLarge("the server takes no update of this size (limits.frame_bytes)")
        raise _refusal_of(code) or ConnectionResetError("the server hung up")

    def _read(self, octets: bytes) -> Record:
        """The record in a message. Raises what the server refused, RunOver, or ServerAtFault."""
        if len(octets) > self._longest_answer:
            raise ServerAtFault(
                f"the server sent a message of {len(octets)} bytes; this run needs {self._longest_answer} "
                "at most"
            )
        try:
            record = wire.decode(octets)
        except SessionRefused as error:
            raise ServerAtFault(f"the server sent what is no record: {shown(str(error))}") from error
        if isinstance(record, Refusal):
            refusal = REFUSALS.get(record.code, Refused)(shown(record.detail))
            refusal.seconds = record.seconds
            raise refusal
        if isinstance(record, Stop):
            raise RunOver(shown(record.reason))
        return record

    def _server(self) -> URL:
        """Whom it asks."""
        return self._servers[0]

    async def _lose(self) -> None:
        """Something failed: the next server may do better."""
        self._was = "lost" if self._was else ""
        self._servers = [*self._servers[1:], self._servers[0]]
        await self._hang_up()

    async def _hang_up(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


async def _not_elsewhere(
    session: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """A server that sends its devices on could have them ask anything within their own network."""
    where = shown(redirect.response.headers.get("Location", ""))
    if not where:
        return
    raise ConfigError(
        f"{redirect.url} sends this device on to {where}: if that is the server, name it in client.server"
    )


def _refusal_of(close_code: int | None) -> SessionRefused | None:
    """The refusal that a private WebSocket close code stands for, if it came without its record."""
    for kind in REFUSALS.values():
        if issubclass(kind, SessionRefused) and close_code == 4000 + kind.status:
            return kind(f"the server closed the session: {kind.code}")
    return None
