"""A connection whose TLS handshake is under way: a stranger like any other, who may be sent away for it.

asyncio's own listening with TLS tells of a connection only once its handshake is over.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast


class Porch(Protocol):
    """Whoever counts connections (doors.py)."""

    def knock(self, stranger: "Handshake") -> bool:
        """A connection is made; whether it may go on."""

    def go(self, stranger: "Handshake") -> None:
        """It is lost, or has got through its handshake. Told again, it changes nothing."""


class Handshake(asyncio.Protocol):
    """Hands over to another protocol, which then has a transport with TLS and all that came meanwhile."""

    def __init__(
        self, inner: Callable[[], asyncio.Protocol], porch: Porch, tls: ssl.SSLContext, seconds: float
    ) -> None:
        self._inner, self._porch, self._tls, self._seconds = inner, porch, tls, seconds
        self._transport: asyncio.Transport | None = None
        self._shaking: asyncio.Task[None] | None = None
        self._came = bytearray()
        self._ended = False
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        if self._porch.knock(self):
            self._shaking = asyncio.get_running_loop().create_task(self._shake(self._transport))
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """With the end of the handshake, before `_shake` is told of that, may come what is for the other."""
        self._came += data

    def eof_received(self) -> None:
        self._ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._porch.go(self)

    def turn_away(self, why: str) -> None:
        """There is no room for it; it cannot be told why before it speaks TLS."""
        self._porch.go(self)
        assert self._transport is not None, "counted once it was made"
        self._transport.abort()

    async def _shake(self, transport: asyncio.Transport) -> None:
        try:
            line = await asyncio.get_running_loop().start_tls(
                transport, self, self._tls, server_side=True, ssl_handshake_timeout=self._seconds
            )
        except OSError:  # all that can go wrong with the other end: of TLS, of time, of the line
            line = None
        self._porch.go(self)
        if line is None or self._ended:
            transport.abort()
            return
        inner = self._inner()
        line.set_protocol(inner)
        inner.connection_made(line)
        if self._came:
            inner.data_received(bytes(self._came))
