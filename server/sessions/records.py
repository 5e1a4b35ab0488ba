"""A device's WebSocket as records. Each record is checked, counted, and charged to the rate limit."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeVar

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.connections import GuardedConnection, Traffic
from edgeflock.server.roster import RateLimiter
from edgeflock.shared.errors import Malformed, Refused, UnexpectedRecord
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.frames import SESSION_CLOSED
from edgeflock.shared.protocol.messages import (
    Credential,
    Goodbye,
    Hello,
    Pull,
    Record,
    Refusal,
    Samples,
    SecureSum,
    Telemetry,
    Update,
)

T = TypeVar("T")
F = TypeVar("F", Credential, Hello)

HEARTBEAT = 60.0
"""Seconds of silence before the server pings. If half as long passes without an answer, it disconnects.
Devices ping earlier (client/transport/dialing.py), and answer pings only between two steps."""

ANSWER_SECONDS = 1.5 * HEARTBEAT
"""Seconds in which a living device sends something: HEARTBEAT until the ping, and half of that to answer."""

CLOSE_SECONDS = 4.0
"""Seconds that a device may take to close. aiohttp waits two of them for its close frame."""

LONGEST_HELLO = 4096
"""The most bytes of a Hello. The server keeps the facts in it for as long as it runs."""

_LATER_RECORDS: Collection[type[Record]] = (Pull, Update, SecureSum, Samples, Telemetry, Goodbye)
"""The records that a device may send after it is admitted."""


class RecordSocket:
    """The records of one connection. Its coroutines raise ConnectionError once the device is gone."""

    def __init__(
        self,
        request: web.Request,
        connection: GuardedConnection,
        traffic: Traffic,
        longest: int,
        headers: Mapping[str, str],
        protocols: Collection[str] = (),
    ) -> None:
        """Messages have at most `longest` bytes. The answer to the request has these `headers`.

        `protocols`: the WebSocket subprotocols that the session may have.
        """
        self._request, self._connection, self._traffic = request, connection, traffic
        self._longest = longest
        self._transport = request.transport
        self._socket = web.WebSocketResponse(
            # aiohttp refuses a message of exactly its limit.
            max_msg_size=longest + 1,
            compress=False,
            heartbeat=HEARTBEAT,
            timeout=2.0,
            protocols=protocols,
        )
        self._socket.headers.update(headers)
        self.meter = connection.meter
        self._closing = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._limiter: RateLimiter | None = None
        """The device's rate limit, once it is admitted."""
        self._on_active: Callable[[], None] = lambda: None

    async def open(self, on_refused: Callable[[Refused], None]) -> web.StreamResponse | None:
        """Answer the request. Returns a refusal if it is not valid.

        `on_refused` is called if the connection's limits end it.
        """
        request = self._request
        if self._socket.can_prepare(request) and (
            request.body_exists or not self._connection.upgrade(LONGEST_HELLO, on_refused)
        ):
            return web.Response(status=400, text="send nothing after the request until it is answered\n")
        await self._socket.prepare(request)
        return None

    @property
    def response(self) -> web.StreamResponse:
        """The response of the request's handler, at the session's end."""
        return self._socket

    async def receive_first(self, kind: type[F], seconds: float) -> tuple[F, bytes]:
        """Return a record that comes before the device is admitted, and its frame.

        Raises UnexpectedRecord if it is of another kind, or none comes within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                message = await self._socket.receive()
        except TimeoutError:
            raise UnexpectedRecord(f"no {kind.__name__} in time") from None
        record, frame = self._decode(message.type, message.data, (kind,))
        assert isinstance(record, kind), "nothing else is taken"
        return record, frame

    def admit(self, limiter: RateLimiter, on_active: Callable[[], None]) -> None:
        """Allow records of the run's size, and charge them to the rate limit from now on.

        `on_active` is called for each record that shows that the device works.
        """
        self._connection.admit(self._longest)
        self._limiter, self._on_active = limiter, on_active

    async def receive(self) -> tuple[Record, bytes]:
        """Return the next record and its frame. First wait, and read nothing, as the rate limit demands."""
        clock, limiter = self._clock, self._limiter
        if limiter is not None and (wait := limiter.wait_seconds(began := clock())) > 0:
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._closing.wait()
            finally:
                limiter.delay_seconds += clock() - began
        message = await self._socket.receive()
        record, frame = self._decode(message.type, message.data, _LATER_RECORDS)
        if not isinstance(record, Telemetry | Goodbye):
            self._on_active()
        return record, frame

    async def wait(self, awaited: Awaitable[T], take: Callable[[Record, bytes], None]) -> T:
        """Return the result of `awaited`, which may take long.

        Meanwhile read what the device sends: pings, its disconnection, and records, which `take` gets.
        """
        waiting = asyncio.ensure_future(awaited)
        try:
            while not waiting.done():
                listening = asyncio.create_task(self.receive())
                try:
                    await asyncio.wait((waiting, listening), return_when=asyncio.FIRST_COMPLETED)
                    if listening.done():
                        take(*listening.result())
                finally:
                    listening.cancel()
                    await asyncio.wait((listening,))  # a socket has one listener at a time
            return waiting.result()
        finally:
            waiting.cancel()
            await asyncio.wait((waiting,))

    async def send(self, record: Record) -> None:
        await self.send_octets(type(record), wire.encode(record))

    async def send_octets(self, kind: type[Record], octets: bytes) -> None:
        """Send an encoded record of this kind."""
        if self._socket.closed:
            raise ConnectionError("closed by the device")
        self._traffic.sent[kind] += wire.framed_size(len(octets), masked=False)
        self._charge(len(octets))
        await self._socket.send_bytes(octets)

    def charge_numbers(self, numbers: int) -> None:
        """Charge the device's rate limit for so many numbers of the model."""
        if self._limiter is not None:
            self._limiter.charge_numbers(numbers, self._clock())

    async def is_alive(self) -> bool:
        """Whether the device sends anything in ANSWER_SECONDS.

        Most devices answer the ping at once. Those that do not read while they train ping by themselves.
        """
        return await self._connection.ping(ANSWER_SECONDS)

    async def close(self, code: int, refusal: Refused | None = None, reason: str = "") -> None:
        """Send the reason and close. A device that does not read is disconnected after CLOSE_SECONDS."""
        self._closing.set()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if refusal is not None:
                    reason = refusal.code
                    await self.send(Refusal(refusal.code, str(refusal), None, refusal.seconds))
                await self._socket.close(code=code, message=reason.encode())
        except ConnectionError:
            pass
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()

    @property
    def disconnect_reason(self) -> str:
        """Why the connection of a device that sent no Goodbye has ended, as in frames.LEFT."""
        if isinstance(self._socket.exception(), TimeoutError):
            return f"timed out: nothing came from it for {1.5 * HEARTBEAT:.0f} s"
        if self._socket.close_code in (WSCloseCode.OK, WSCloseCode.GOING_AWAY):
            return SESSION_CLOSED
        return "killed: the connection broke"

    def _decode(self, kind: WSMsgType, data: object, kinds: Collection[type[Record]]) -> tuple[Record, bytes]:
        if kind in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            raise ConnectionError("closed by the device")
        self._connection.release_message()
        if kind is not WSMsgType.BINARY or not isinstance(data, bytes):
            raise Malformed("records travel in binary messages")
        record = wire.decode(data, kinds)
        self._traffic.received[type(record)] += wire.framed_size(len(data), masked=True)
        self._charge(len(data))
        return record, data

    def _charge(self, octets: int) -> None:
        if self._limiter is not None:
            self._limiter.charge(octets, self._clock())
