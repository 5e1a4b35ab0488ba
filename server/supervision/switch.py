"""Decides by the path of a connection's first request which run it belongs to, and forwards its bytes.

A connection belongs to one run. This server reads the head of its first request and nothing else. So a run's
server sees the bytes that its caller has sent, and applies its own limits and its own back-pressure to them.
It ends the connection with its first answer, unless that opens a WebSocket.

While one side does not read, nothing is read from the other: a connection takes two buffers at most.
"""

import asyncio
import re
import select
from collections.abc import Callable
from typing import NamedTuple, cast

from edgeflock.server.connections import ConnectionLimits
from edgeflock.server.connections.connection import refusal_octets
from edgeflock.server.connections.forwarding import ForwardedOrigin
from edgeflock.server.connections.traffic import address_of
from edgeflock.server.identity import peer_certificate
from edgeflock.server.supervision.run_files import NAME

ACTIONS = ("pause", "resume", "archive")
"""Paths below a run's that this server answers itself."""

PREFIX = "/v1/runs/"

_TARGET = re.compile(rf"{PREFIX}({NAME.pattern})(/(?!(?:{'|'.join(ACTIONS)})$).*)".encode())
"""The target of a request to a run's server: (the run, the target there). The name is not percent-encoded."""

_END_OF_HEAD = b"\r\n\r\n"

_LONGEST_HEAD = 1 << 15
"""Bytes of a request's head. aiohttp takes as many."""

_BUFFER = 1 << 16
"""Bytes that wait for a side before the other one is not read any more."""

_CONNECT_SECONDS = 5.0
"""Seconds for the server of a run to accept a connection."""

_FLUSH_SECONDS = 60.0
"""Seconds for a side to read the last bytes, once the other side has ended."""


class Destination(NamedTuple):
    """Where a connection goes."""

    socket: str
    """The Unix socket of the run's server; empty: it is not available."""
    unavailable_reason: str = ""


class Account(NamedTuple):
    """What a caller may do in all runs."""

    role: str = ""
    name: str = ""
    is_valid: Callable[[], bool] = lambda: True
    """Whether its token is still valid."""


Routing = Callable[[str], Destination | None]
"""A run's name -> where its connections go; None: there is no such run."""

Authentication = Callable[[dict[str, str]], Account]
"""Headers, with names in lower case -> the caller with a token of this server, or the empty Account."""


class _Side(asyncio.Protocol):
    """A connection of the switch."""

    _transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "connected"
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)


class Switch(_Side):
    """The side of the caller, as an asyncio protocol below a `GuardedConnection`."""

    def __init__(
        self,
        own: Callable[[], asyncio.BaseProtocol],
        limits: ConnectionLimits,
        route: Routing,
        authenticate: Authentication,
        forwarded: set["Switch"],
    ) -> None:
        """`own` makes the protocol of this server's own routes. `forwarded` holds all that are forwarded."""
        self._make_own, self._limits = own, limits
        self._route, self._authenticate, self._forwarded = route, authenticate, forwarded
        self._received = b""
        self._own: asyncio.Protocol | None = None
        self._far_side: _FarSide | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.account = Account()
        self._is_ending = False

    def data_received(self, data: bytes) -> None:
        if self._own is not None:
            self._own.data_received(data)
        elif self._far_side is not None:
            self._far_side.transport.write(data)
        else:
            self._received += data
            if self._connecting is None:
                self._dispatch()

    def eof_received(self) -> bool | None:
        return self._own.eof_received() if self._own is not None else None

    def pause_writing(self) -> None:
        if self._own is not None:
            self._own.pause_writing()
        elif self._far_side is not None:
            self._far_side.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._own is not None:
            self._own.resume_writing()
        elif self._far_side is not None:
            self._far_side.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._forwarded.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._own is not None:
            self._own.connection_lost(error)
        if self._far_side is not None:
            close(self._far_side.transport)

    def look_for_end(self) -> None:
        """End the connection if a side has ended unseen, while nothing is read from it.

        The other side may still read what has come, for a while.
        """
        if self._far_side is None or self._is_ending:
            return
        sides = self.transport, self._far_side.transport
        if any(not one.is_reading() and _has_hung_up(one) for one in sides):
            self._is_ending = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.transport.abort)

    def _dispatch(self) -> None:
        """Give the connection to a run's server or to the own routes, once the head is complete."""
        head, end, rest = self._received.partition(_END_OF_HEAD)
        if not end:
            if len(self._received) > _LONGEST_HEAD:
                self._refuse(431, "head-too-large", f"a request's head has at most {_LONGEST_HEAD} bytes")
            return
        line, _, fields = head.partition(b"\r\n")
        parts = line.split(b" ")
        match = _TARGET.fullmatch(parts[1]) if len(parts) == 3 else None
        if match is None:
            self._serve_itself()
            return
        name = match[1].decode()
        destination = self._route(name)
        if destination is None:
            self._refuse(404, "unknown-run", f"this server has no run {name!r}")
        elif destination.unavailable_reason:
            self._refuse(503, "unavailable", destination.unavailable_reason)
        else:
            self.account = self._authenticate(headers_of(fields))
            own_head = b"%s %s %s\r\n%s" % (parts[0], match[2], parts[2], fields + end if fields else b"\r\n")
            self.transport.pause_reading()
            self._received = rest
            forwarding = self._forward(destination.socket, self._origin().encode() + own_head)
            self._connecting = asyncio.create_task(forwarding)

    def _serve_itself(self) -> None:
        own = self._own = cast(asyncio.Protocol, self._make_own())
        own.connection_made(self.transport)
        own.data_received(self._received)
        self._received = b""

    def _origin(self) -> ForwardedOrigin:
        transport = self.transport
        peer = transport.get_extra_info("peername")
        return ForwardedOrigin(
            address_of(transport),
            peer[1] if isinstance(peer, tuple) else 0,
            secure=transport.get_extra_info("sslcontext") is not None,
            certificate=peer_certificate(transport.get_extra_info("ssl_object")),
            role=self.account.role,
            account=self.account.name,
        )

    async def _forward(self, socket: str, first: bytes) -> None:
        """Connect to the run's server, send `first` and what has come since, and let the bytes flow."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, far_side = await loop.create_unix_connection(lambda: _FarSide(self.transport), socket)
        except OSError:  # also of a server that accepts nothing in time
            self._refuse(503, "unavailable", "the run's server does not answer")
            return
        if (connection := self._limits.find(self.transport)) is None:  # lost meanwhile
            far_side.transport.abort()
            return
        connection.begin(authenticated=True)  # from now on the run's server limits it
        first += self._received
        self._far_side, self._received = far_side, b""
        self._forwarded.add(self)
        far_side.transport.write(first)
        self.transport.resume_reading()

    def _refuse(self, status: int, code: str, reason: str) -> None:
        self.transport.write(refusal_octets(status, code, reason))
        close(self.transport)


class _FarSide(_Side):
    """The side of the run's server."""

    def __init__(self, caller: asyncio.Transport) -> None:
        self._caller = caller

    def data_received(self, data: bytes) -> None:
        self._caller.write(data)

    def pause_writing(self) -> None:
        self._caller.pause_reading()

    def resume_writing(self) -> None:
        self._caller.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        close(self._caller)


def _has_hung_up(transport: asyncio.Transport) -> bool:
    """Whether the peer has closed its end, whatever it has sent before."""
    if transport.is_closing():
        return False
    polling = select.poll()
    polling.register(transport.get_extra_info("socket"), getattr(select, "POLLRDHUP", 0))  # macOS lacks it
    return bool(polling.poll(0))


def headers_of(fields: bytes) -> dict[str, str]:
    """Return the headers of a request's head. Of two with one name the first counts."""
    headers: dict[str, str] = {}
    for line in fields.split(b"\r\n"):
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            headers.setdefault(name.lower(), value.strip(" \t"))
    return headers


def close(transport: asyncio.Transport) -> None:
    """Close a side once it has read what was sent to it, or after a while, which asyncio does with TLS."""
    if not transport.is_closing():
        is_unsent = transport.get_write_buffer_size() > 0
        transport.close()
        if is_unsent:
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, transport.abort)
