"""A guarded connection: an asyncio protocol that forwards data to aiohttp's, and closes late connections.

It has three states: it awaits a request's head, a request is being answered, or frames arrive. While a head
is awaited or a message is unfinished, `due` is the time by which it must be complete.
"""

import asyncio
import json
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, cast

from edgeflock.server.connections import framing
from edgeflock.server.connections.forwarding import forwarded_origin
from edgeflock.server.connections.traffic import Meter, MeteredTransport, address_of
from edgeflock.shared.errors import FrameTooLarge, NoRoom, Refused, SessionRefused, TooSlow, Unavailable
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Refusal

LEAVE_SECONDS = 4.0
"""How long a peer may take to read the reason before the connection is aborted."""

_END_OF_HEAD = b"\r\n\r\n"
_PING = b"\x89\x00"


def refusal_octets(status: int, code: str, detail: str) -> bytes:
    """A refusal as JSON in an HTTP answer, after which the connection is closed."""
    body = json.dumps({"code": code, "detail": detail})
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class ConnectionObserver(Protocol):
    """Observes all guarded connections; `ConnectionLimits` implements it (limits.py)."""

    def enter(self, connection: "GuardedConnection") -> str | None:
        """Register a new connection. Return the reason if it is refused, else None."""

    def leave(self, connection: "GuardedConnection") -> None:
        """Unregister a lost or closed connection. Idempotent."""

    def begin(self, connection: "GuardedConnection", *, authenticated: bool) -> None:
        """A request is being answered; `authenticated`: whether its token is valid."""

    def watch(self, connection: "GuardedConnection") -> None:
        """The connection's `due` has changed."""

    def hold(self, connection: "GuardedConnection", more: int) -> None:
        """The connection holds `more` additional bytes (negative: fewer)."""


class GuardedConnection(asyncio.Protocol):
    """An asyncio protocol that wraps aiohttp's."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        connection_limits: ConnectionObserver,
        total: Meter,
        request_seconds: float,
        message_seconds: float,
    ) -> None:
        """`total` counts the server's traffic."""
        self._inner = inner
        self._connection_limits = connection_limits
        self.meter, self._total = Meter(), total
        self._request_seconds = request_seconds
        self._message_seconds = message_seconds
        self._transport: asyncio.Transport | None = None
        self._closing = self._accepted = False
        self._tail = b""
        """The last bytes received of a head."""
        self._has_head = self._has_early_data = False
        self._framing: framing.Framing | None = None
        self._before_hello = True
        self._on_refusal: Callable[[Refused], None] = lambda refusal: None
        self._answer: asyncio.Future[bool] | None = None
        self.due = math.inf
        """When the current head or message must be complete, by the event loop's clock."""
        self.since = 0.0
        """When a message last began or ended, by the same clock."""
        self.held_bytes = 0
        """Bytes of received messages that are unfinished or not taken yet."""
        self.address = ""

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "connected"
        return self._transport

    # asyncio's protocol callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        origin = forwarded_origin(transport)
        self.meter.internal = origin is not None and origin.is_internal
        metered = MeteredTransport(cast(asyncio.Transport, transport), self.meter, self._total)
        self._transport = cast(asyncio.Transport, metered)
        self.address = address_of(transport)
        if (full := self._connection_limits.enter(self)) is not None:
            self.reject(full)
            return
        self._accepted = True
        self._expect(self._request_seconds)
        self._inner.connection_made(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._connection_limits.leave(self)
        self._set_answer(False)
        if self._accepted:
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._accepted else None

    def data_received(self, data: bytes) -> None:
        self.meter.count_received(len(data), self._total)
        if self._closing:
            return
        if self._answer is not None:
            self._set_answer(True)
        if self._framing is None:
            self._follow_head(data)
        elif not self._follow_frames(self._framing, data):
            return
        self._inner.data_received(data)

    # Calls of the request handlers

    def begin(self, *, authenticated: bool) -> None:
        """A request's head is complete; `authenticated`: whether its token is valid."""
        self._expect(math.inf)
        self._connection_limits.begin(self, authenticated=authenticated)

    def end(self) -> None:
        """The request is answered, and another one may follow. aiohttp limits the idle time."""
        if self._has_early_data:  # a part of the next request has arrived
            self._expect(self._request_seconds)
        self._has_head, self._has_early_data, self._tail = False, False, b""

    def upgrade(self, max_bytes: int, on_refusal: Callable[[Refused], None]) -> bool:
        """Expect frames from now on, with messages of at most `max_bytes` bytes until `admit`.

        Return False if data has arrived before the request's head is answered, which is not allowed.
        `on_refusal` is called with the refusal if this connection has to close.
        """
        if self._has_early_data or not self._has_head:
            return False
        self._framing = framing.Framing(max_bytes)
        self._on_refusal = on_refusal
        return True

    def admit(self, max_bytes: int) -> None:
        """The device is admitted: its messages may have up to `max_bytes` bytes."""
        assert self._framing is not None, "upgraded"
        self._framing.max_bytes = max_bytes
        self._before_hello = False

    def release_message(self) -> None:
        """Record that the next message was taken."""
        assert self._framing is not None, "upgraded"
        self._framing.take()
        self._account(self._framing)

    async def ping(self, seconds: float) -> bool:
        """Send a ping, and return whether any byte arrives within `seconds`."""
        if self._closing:
            return False
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
            self.transport.write(_PING)
        answer = self._answer
        await asyncio.wait([answer], timeout=seconds)
        return answer.done() and answer.result()

    # Closing

    def reject(self, reason: str) -> None:
        """Refuse this connection because there are too many."""
        if self._framing is not None:
            self._end_session(Unavailable(reason))
            return
        self._close(refusal_octets(503, "too-many-connections", reason))

    def close_overdue(self) -> None:
        """Close the connection because its head or message is late."""
        seconds = self._message_seconds
        if self._framing is not None:
            self._end_session(TooSlow(f"a message took longer than {seconds:g} s (limits.message_seconds)"))
        elif self._tail:
            reason = "the request was late (limits.request_seconds)"
            self._close(refusal_octets(408, "too-slow", reason))
        else:
            self._close(b"")

    def evict(self) -> None:
        """Close the session to free memory: this connection weighs the most of those with held bytes."""
        self._end_session(
            NoRoom("the server receives too much at once (limits.inflight_bytes); send it again later")
        )

    def _end_session(self, refusal: SessionRefused) -> None:
        message = framing.binary(wire.encode(Refusal(refusal.code, str(refusal), None)))
        self._close(message + framing.close(4000 + refusal.status, refusal.code))
        self._on_refusal(refusal)

    def _close(self, last_bytes: bytes) -> None:
        self._closing = True
        self._connection_limits.leave(self)
        self.transport.write(last_bytes)
        self.transport.close()
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, self.transport.abort)

    # Parsing

    def _follow_head(self, data: bytes) -> None:
        """Find the end of a request's head. Data before its answer must not be parsed as frames."""
        if self._has_head:
            self._has_early_data = True
            return
        if self.due == math.inf:
            self._expect(self._request_seconds)
        seen = self._tail + data
        end = seen.find(_END_OF_HEAD)
        self._tail = seen[-3:]
        if end >= 0:
            self._has_head, self._has_early_data = True, end + len(_END_OF_HEAD) < len(seen)

    def _follow_frames(self, frames: framing.Framing, data: bytes) -> bool:
        """Parse frames. Return whether `data` may be forwarded to aiohttp."""
        before, waited = frames.messages, frames.unfinished
        try:
            frames.feed(data)
        except framing.Breach as breach:
            self._breach(frames, breach)
            return False
        waits = frames.unfinished
        if frames.messages != before or not waited:
            self.since = asyncio.get_running_loop().time()
        if not waits:
            self._expect(math.inf)
        elif frames.messages != before or not waited:
            self._expect(self._message_seconds)
        self._account(frames)
        return not self._closing

    def _expect(self, seconds: float) -> None:
        """Set `due` to `seconds` from now."""
        due = math.inf if seconds == math.inf else asyncio.get_running_loop().time() + seconds
        if due != self.due:
            self.due = due
            self._connection_limits.watch(self)

    def _account(self, frames: framing.Framing) -> None:
        more, self.held_bytes = frames.held_bytes - self.held_bytes, frames.held_bytes
        self._connection_limits.hold(self, more)

    def _breach(self, frames: framing.Framing, breach: framing.Breach) -> None:
        if breach.code == framing.TOO_BIG and self._before_hello:
            self._end_session(FrameTooLarge(f"a Hello has at most {frames.max_bytes} bytes"))
        else:
            self._close(framing.close(breach.code, str(breach)))

    def _set_answer(self, arrived: bool) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(arrived)
