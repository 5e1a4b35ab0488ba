"""A connection during its TLS handshake. It counts as a connection without a token, and can be closed.

With TLS, asyncio reports a connection only after its handshake. It closes plain HTTP connections without an
answer, and such clients would retry forever. Here the first byte tells TLS from plain HTTP. Plain HTTP gets
an answer that says what to do (RFC 2817, section 4.2).
"""

import asyncio
import asyncio.sslproto
import ssl
from collections.abc import Callable
from typing import cast

from edgeflock.server.connections.traffic import address_of

_HANDSHAKE = 22
"""The content type that starts TLS (RFC 8446, section 5.1). No HTTP request starts with it."""

_TLS_HINT = b"this port speaks TLS: write https:// instead of http://"
_SPEAKS_TLS = (
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2, HTTP/1.1\r\nConnection: Upgrade, close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(_TLS_HINT), _TLS_HINT)
)

_BUFFER = 1 << 14
"""The size of asyncio's TLS read buffer, which each connection has: the longest TLS record (RFC 8446, section
5.1). asyncio's default is 256 KiB. A process has one value for all its connections."""


def shrink_buffers() -> None:
    """Make each later TLS connection take 230 KiB less memory."""
    asyncio.sslproto.SSLProtocol.max_size = _BUFFER


class Handshake(asyncio.Protocol):
    """Performs the handshake, then passes the TLS transport and any received data to another protocol."""

    def __init__(
        self,
        inner: Callable[[], asyncio.Protocol],
        enter: Callable[["Handshake"], str | None],
        leave: Callable[["Handshake"], None],
        tls: ssl.SSLContext,
        seconds: float,
    ) -> None:
        """`enter` and `leave` count this connection. `enter` returns the reason if it is refused."""
        self._inner, self._enter, self._leave, self._tls, self._seconds = inner, enter, leave, tls, seconds
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._ended = False
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address = address_of(transport)
        if self._enter(self) is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._transport.abort)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Start the handshake with the first bytes. Keep what arrives before `_shake` resumes."""
        assert self._transport is not None, "connected"
        if self._handshake is not None:
            self._received += data
        elif data[0] == _HANDSHAKE:
            self._transport.pause_reading()
            self._handshake = asyncio.get_running_loop().create_task(self._shake(self._transport, data))
        else:
            self._transport.write(_SPEAKS_TLS)
            self._transport.close()

    def eof_received(self) -> None:
        self._ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._stop_timer()
        self._leave(self)

    def reject(self, reason: str) -> None:
        """Refuse the connection. The peer gets no reason, because TLS is not established yet."""
        self._leave(self)
        assert self._transport is not None, "counted once it was made"
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _shake(self, transport: asyncio.Transport, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        handshake = loop.create_task(
            loop.start_tls(transport, self, self._tls, server_side=True, ssl_handshake_timeout=self._seconds)
        )
        await asyncio.sleep(0)  # now TLS is the transport's protocol; reading starts after this
        loop.call_soon(_feed, transport.get_protocol(), first)
        try:
            secure = await handshake
        except OSError:  # any failure of the peer: TLS, timeout or connection
            secure = None
        self._stop_timer()
        self._leave(self)
        if secure is None or self._ended:
            transport.abort()
            return
        inner = self._inner()
        secure.set_protocol(inner)
        inner.connection_made(secure)
        if self._received:
            inner.data_received(bytes(self._received))


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Pass `data`, which was read before `protocol` was set, to it as a transport does."""
    assert isinstance(protocol, asyncio.BufferedProtocol), "what speaks TLS in asyncio"
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        part = data[: len(buffer)]
        buffer[: len(part)] = part
        protocol.buffer_updated(len(part))
        data = data[len(part) :]
