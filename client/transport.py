"""The session from the device's side: ask, and get an answer, however often the line drops in between.

A request that got no answer is sent again after a reconnect. That is safe for each: a Pull changes nothing,
and an Update keeps its sequence number, so that the server answers a second one with the first one's receipt.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TypeVar

import aiohttp
from yarl import URL

from edgeflock.client.first_model import Kept
from edgeflock.shared.errors import (
    REFUSALS,
    ConfigError,
    FrameTooLarge,
    Malformed,
    NoRoom,
    Refused,
    RunOver,
    RunReplaced,
    SessionRefused,
    TooManyDevices,
    TooSlow,
    Unauthorized,
    Unavailable,
)
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.backoff import back_off, may_pass, permanent
from edgeflock.shared.protocol.messages import (
    Facts,
    Hello,
    Model,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    Stop,
    Update,
    Welcome,
)

R = TypeVar("R")

log = logging.getLogger(__name__)

ANSWER_SECONDS = 300.0
"""The longest wait for an answer, a large model over a slow line included. Dead lines show by heartbeat."""

SILENT_SECONDS = 60.0
"""The longest wait for the next bytes of a first model."""

HEARTBEAT = 20.0
"""Seconds of silence after which the device pings."""

_TRANSIENT = (NoRoom, TooManyDevices, TooSlow, Unavailable)


class Link:
    """A device's line to its server. Use as an async context manager."""

    def __init__(
        self,
        server: str,
        token: str,
        hello: Hello,
        random: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`server` is the server's http(s) URL. Raises ConfigError if it is none."""
        try:
            url = URL(server)
        except ValueError:
            url = URL()
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"client.server {server!r} must be a URL such as http://192.0.2.1:8470")
        self._server = url
        self._url = url / "v1/session"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._hello = hello
        self._random = random
        self._sleep = sleep
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._run = ""
        self._injects = False
        self._listener: Callable[[Samples], None] = lambda samples: None
        self._graphs: dict[str, tuple[str, bytes]] = {}
        """kind -> (ETag, graph)."""
        self.connections = 0

    async def __aenter__(self) -> "Link":
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)
        self._http = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hang_up()
        if self._http is not None:
            await self._http.close()

    async def join(self) -> Welcome:
        """Connect, for as long as it takes. Raises SessionRefused if the server will not have this device,
        ConfigError if there is no server that it could connect to.
        """
        await self._hang_up()
        self._run = ""
        welcome = await self._retry(self._dial)
        self._run = welcome.run
        return welcome

    async def push(self, update: Update) -> Receipt:
        """The receipt for `update`, which is then durable. Raises Refused, RunOver or RunReplaced."""
        return await self._ask(update, Receipt)

    async def pull(self, base: int | None, held: int = 0) -> Model:
        """The current model. Raises Refused, RunOver or RunReplaced."""
        return await self._ask(Pull(base, held), Model)

    async def share(self, samples: Samples) -> None:
        """Send samples to the others, if the run still wants that. They are lost if the line is."""
        if self._socket is not None and self._injects:
            with suppress(ConnectionError):  # the next question notices
                await self._socket.send_bytes(wire.encode(samples))

    def listen(self, listener: Callable[[Samples], None]) -> None:
        """Hand what others share to `listener`: it comes along with answers."""
        self._listener = listener

    async def graph(self, kind: str) -> bytes:
        """The run's "step" or "evaluation" as an ONNX graph; one that has not changed is not sent again.

        The server makes it when it is first asked, which may take minutes. Raises ConfigError if it has none.
        """

        async def attempt() -> bytes:
            return await self._get_graph(kind)

        began = asyncio.get_running_loop().time()
        graph = await self._retry(attempt)
        await self._hang_up_after(began)
        return graph

    async def load(self, kept: Kept) -> bool:
        """Bring what is missing of a first model; False if the server has it no longer, or has another.

        After a line that dropped it goes on where that broke off. Raises Malformed if something else comes
        than was announced, ConfigError if `kept` cannot keep it.
        """

        async def attempt() -> bool:
            return await self._load(kept)

        found, began = True, asyncio.get_running_loop().time()
        while found and kept.missing:
            before = kept.size
            found = await self._retry(attempt)
            if found and kept.missing:
                log.warning("the line dropped after %d bytes of the first model", kept.size - before)
                await self._sleep(next(back_off(self._random)))
        await self._hang_up_after(began)
        return found

    def speak_as(self, layout: bytes) -> None:
        """Name the layout in every Hello from now on, so that a server with another model refuses it."""
        self._hello = replace(self._hello, layout=layout)

    async def introduce(self, facts: Facts) -> None:
        """Tell the server `facts` about this device, in a new session if it was told others."""
        if facts != self._hello.facts:
            self._hello = replace(self._hello, facts=facts)
            await self._hang_up()

    async def _ask(self, question: Record, expected: type[R]) -> R:
        octets = wire.encode(question)

        async def attempt() -> R:
            socket = await self._connected()
            with suppress(ConnectionError):  # if the server hung up, what it said last tells why
                await socket.send_bytes(octets)
            answer = await self._receive(socket)
            if not isinstance(answer, expected):
                raise Malformed(f"the server answered with a {type(answer).__name__}")
            return answer

        return await self._retry(attempt)

    async def _retry(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """What `attempt` comes to, as often as it takes. Raises ConfigError if it never will."""
        delays = back_off(self._random)
        while True:
            try:
                return await attempt()
            except (*_TRANSIENT, OSError, aiohttp.ClientError, TimeoutError) as error:
                await self._hang_up()
                status = error.status if isinstance(error, aiohttp.ClientResponseError) else None
                if hopeless := permanent(str(self._server), error, status):
                    raise hopeless from error
                delay = next(delays)
                log.warning("%s; trying again in %.1f s", error or type(error).__name__, delay)
                await self._sleep(delay)

    async def _get_graph(self, kind: str) -> bytes:
        assert self._http is not None, "use Link as an async context manager"
        url = self._server / "v1/graphs" / kind
        etag, graph = self._graphs.get(kind, ("", b""))
        headers = {**self._headers, **({"If-None-Match": etag} if etag else {})}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=ANSWER_SECONDS)
        async with self._http.get(url, headers=headers, timeout=timeout) as response:
            if response.status == 304:
                return graph
            if response.status == Unauthorized.status:
                raise Unauthorized("the server does not know this token (client.token)")
            if not response.ok and not may_pass(response.status):
                raise ConfigError(f"{url} gives no graph: {await _detail(response)}")
            response.raise_for_status()
            graph = await response.read()
            self._graphs[kind] = response.headers.get("ETag", ""), graph
            return graph

    async def _load(self, kept: Kept) -> bool:
        """As much as comes before the line drops. Raises what a line raises only if that is nothing."""
        assert self._http is not None, "use Link as an async context manager"
        url, before = self._server / "v1/start" % {"device": self._hello.device}, kept.size
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=SILENT_SECONDS)
        try:
            async with self._http.get(
                url, headers={**self._headers, **kept.asking}, timeout=timeout
            ) as response:
                if response.status == Unauthorized.status:
                    raise Unauthorized("the server does not know this token (client.token)")
                if response.status == 404:
                    return False
                response.raise_for_status()
                if not kept.begin(response.headers):
                    return False
                async for octets in response.content.iter_any():
                    kept.add(octets)
        except (OSError, aiohttp.ClientError, TimeoutError):
            if kept.size <= before:
                raise
        return True

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        if self._socket is None:
            welcome = await self._dial()
            if welcome.run != self._run:
                raise RunReplaced(f"the server now hosts run {welcome.run}")
        assert self._socket is not None
        return self._socket

    async def _dial(self) -> Welcome:
        assert self._http is not None, "use Link as an async context manager"
        try:
            socket = await self._http.ws_connect(
                self._url, headers=self._headers, heartbeat=HEARTBEAT, max_msg_size=0, compress=0
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == Unauthorized.status:
                raise Unauthorized("the server does not know this token (client.token)") from error
            raise
        self._socket = socket
        self.connections += 1
        await socket.send_bytes(wire.encode(self._hello))
        welcome = await self._receive(socket)
        if not isinstance(welcome, Welcome):
            raise Malformed(f"the server answered a Hello with a {type(welcome).__name__}")
        self._hello = replace(self._hello, secret=welcome.secret)
        self._injects = welcome.alpha > 0 and welcome.beta > 0
        return welcome

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> Record:
        """The next record that is an answer; samples before it go to the listener. Raises what the server
        refused, or ConnectionError if it hung up.
        """
        async with asyncio.timeout(ANSWER_SECONDS):
            while isinstance(record := await self._next(socket), Samples):
                self._listener(record)
        return record

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> Record:
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            # The close frame itself: the socket's own close_code is 1006 once the line is gone.
            code = message.data if message.type is aiohttp.WSMsgType.CLOSE else socket.close_code
            if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
                raise FrameTooLarge("the server takes no update of this size (limits.frame_bytes)")
            refusal = _refusal_of(code)
            raise refusal or ConnectionResetError("the server hung up")
        record = wire.decode(message.data)
        if isinstance(record, Refusal):
            raise REFUSALS.get(record.code, Refused)(record.detail)
        if isinstance(record, Stop):
            raise RunOver(record.reason)
        return record

    async def _hang_up_after(self, began: float) -> None:
        """If it is long since: nobody answered pings meanwhile; a new session is better than a lost one."""
        if asyncio.get_running_loop().time() - began > HEARTBEAT:
            await self._hang_up()

    async def _hang_up(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


async def _detail(response: aiohttp.ClientResponse) -> str:
    """What the server says is wrong, or the status if it does not say."""
    try:
        return str((await response.json())["detail"])
    except (aiohttp.ContentTypeError, ValueError, KeyError, TypeError):
        return f"{response.status} {response.reason}"


def _refusal_of(close_code: int | None) -> SessionRefused | None:
    """The refusal that a private WebSocket close code stands for, if it came without its record."""
    for kind in REFUSALS.values():
        if issubclass(kind, SessionRefused) and close_code == 4000 + kind.status:
            return kind(f"the server closed the session: {kind.code}")
    return None
