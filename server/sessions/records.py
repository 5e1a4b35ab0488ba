"""A device's WebSocket, as records: each is one of those that may come, is counted, and is paid for."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web

from edgeflock.server.connections import GuardedConnection
from edgeflock.server.roster import Meter, RateLimiter, Traffic
from edgeflock.shared.errors import Malformed, Refused, UnexpectedRecord
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    Goodbye,
    Hello,
    Pull,
    Record,
    Refusal,
    Samples,
    Telemetry,
    Update,
)

HEARTBEAT = 60.0
"""Seconds of silence after which the server pings; after half of it again without an answer it hangs up.
Devices ping earlier (client/transport/dialing.py), and answer pings only between two steps."""

ANSWER_SECONDS = 1.5 * HEARTBEAT
"""Within which something comes of a device that lives: it is pinged after HEARTBEAT, and has half of that."""

CLOSE_SECONDS = 4.0
"""How long a device may take to take leave; aiohttp waits two seconds of them for its close frame."""

LONGEST_HELLO = 4096
"""Bytes. What a device tells about itself is kept for as long as the server runs."""

_FIRST: Collection[type[Record]] = (Hello,)
_LATER: Collection[type[Record]] = (Pull, Update, Samples, Telemetry, Goodbye)
"""What a device may send, until it is let in and after that."""


class RecordSocket:
    """Of one connection. Whatever is sent or awaited raises ConnectionError once the device is gone."""

    def __init__(
        self,
        request: web.Request,
        door: GuardedConnection,
        traffic: Traffic,
        longest: int,
        headers: Mapping[str, str],
    ) -> None:
        """Messages have at most `longest` bytes. The answer to the request has these `headers`."""
        self._request, self._door, self._traffic = request, door, traffic
        self._longest = longest
        self._transport = request.transport
        self._socket = web.WebSocketResponse(
            # aiohttp refuses a message of exactly its limit.
            max_msg_size=longest + 1,
            compress=False,
            heartbeat=HEARTBEAT,
            timeout=2.0,
        )
        self._socket.headers.update(headers)
        self.meter = Meter()
        if self._transport is not None:
            self.meter = self._transport.get_extra_info("meter", self.meter)
        self._leaving = asyncio.Event()
        self._pace: RateLimiter | None = None
        """Of the device, once it is let in."""

    async def open(self, hung_up: Callable[[Refused], None]) -> web.StreamResponse | None:
        """Answer the request. Returns the refusal if it cannot be taken. `hung_up` is told if the door has to
        hang up.
        """
        request = self._request
        if self._socket.can_prepare(request) and (
            request.body_exists or not self._door.upgrade(LONGEST_HELLO, hung_up)
        ):
            return web.Response(status=400, text="nothing follows the request until it is answered\n")
        await self._socket.prepare(request)
        return None

    @property
    def response(self) -> web.StreamResponse:
        """What the request has come to, once all is over."""
        return self._socket

    async def hello(self, seconds: float) -> tuple[Hello, bytes]:
        """What comes first, in so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                message = await self._socket.receive()
        except TimeoutError:
            raise UnexpectedRecord("no Hello in time") from None
        hello, frame = self._received(message.type, message.data, _FIRST)
        assert isinstance(hello, Hello), "nothing else is taken"
        return hello, frame

    def let_in(self, pace: RateLimiter) -> None:
        """Its records may be as long as the run's, and are paid for from now on."""
        self._door.welcome(self._longest)
        self._pace = pace

    async def next(self) -> tuple[Record, bytes]:
        """What comes next, once the device has paid for what came before. Meanwhile nothing is read."""
        clock, pace = asyncio.get_running_loop().time, self._pace
        if pace is not None and (wait := pace.wait(began := clock())) > 0:
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._leaving.wait()
            finally:
                pace.held_back += clock() - began
        message = await self._socket.receive()
        return self._received(message.type, message.data, _LATER)

    async def send(self, record: Record) -> None:
        await self.send_octets(type(record), wire.encode(record))

    async def send_octets(self, kind: type[Record], octets: bytes) -> None:
        """A record of this kind, encoded."""
        if self._socket.closed:
            raise ConnectionError("closed by the device")
        self._traffic.sent[kind] += wire.framed_size(len(octets), masked=False)
        self._spend(len(octets))
        await self._socket.send_bytes(octets)

    async def refuse(self, refusal: Refused, sequence: int | None) -> None:
        await self.send(Refusal(refusal.code, str(refusal), sequence, refusal.seconds))

    async def answers(self) -> bool:
        """Whether anything comes of the device, in the time after which it would be taken for gone anyway.

        Most answer the ping at once; those that read nothing while they train ping by themselves.
        """
        return await self._door.answers(ANSWER_SECONDS)

    async def close(self, code: int, refusal: Refused | None = None, reason: str = "") -> None:
        """Say why, and hang up on a device that does not listen: nobody waits for it."""
        self._leaving.set()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if refusal is not None:
                    reason = refusal.code
                    await self.refuse(refusal, None)
                await self._socket.close(code=code, message=reason.encode())
        except ConnectionError:
            pass
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()

    @property
    def lost(self) -> str:
        """Why a device's line has ended that said nothing."""
        if isinstance(self._socket.exception(), TimeoutError):
            return f"timed out: nothing came from it for {1.5 * HEARTBEAT:.0f} s"
        if self._socket.close_code in (WSCloseCode.OK, WSCloseCode.GOING_AWAY):
            return "retired: it closed its session"
        return "killed: the line broke without a word"

    def _received(
        self, kind: WSMsgType, data: object, taken: Collection[type[Record]]
    ) -> tuple[Record, bytes]:
        if kind in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            raise ConnectionError("closed by the device")
        self._door.taken()
        if kind is not WSMsgType.BINARY or not isinstance(data, bytes):
            raise Malformed("records travel in binary messages")
        record = wire.decode(data, taken)
        self._traffic.received[type(record)] += wire.framed_size(len(data), masked=True)
        self._spend(len(data))
        return record, data

    def _spend(self, octets: int) -> None:
        if self._pace is not None:
            self._pace.spend(octets, asyncio.get_running_loop().time())
