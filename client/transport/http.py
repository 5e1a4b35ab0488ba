"""The HTTP client of a device: without redirects, and with a rate limit for what it sends and receives.

    aiohttp, TLS <-> one end of a pair of sockets <-> the other end <-> TCP, at the allowance's rate

Both directions of all connections share one allowance, which counts TLS. The downlink is slowed at the
sender: nothing is read before there is room, and the kernel's buffer is small.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import inf
from types import SimpleNamespace
from typing import Any

import aiohappyeyeballs
import aiohttp
from aiohttp.client_proto import ResponseHandler

from edgeflock.client.neighbour.limits import Allowance
from edgeflock.client.transport.credentials import Credentials
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.shown import printable


@asynccontextmanager
async def open_http(
    credentials: Credentials, tls: ssl.SSLContext | bool, rate: float
) -> AsyncIterator[aiohttp.ClientSession]:
    """Open an HTTP session. `rate`: bytes per second in both directions. `credentials` read answers."""
    connector = None if rate == inf else RateLimitedConnector(rate, tls)
    traced = aiohttp.TraceConfig()
    traced.on_request_redirect.append(_refuse_redirect)
    traced.on_request_end.append(credentials.read)
    try:
        async with aiohttp.ClientSession(
            connector=connector or aiohttp.TCPConnector(ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=20),
            trace_configs=[traced],
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as http:
            yield http
    finally:
        if connector is not None:
            await connector.drain()


async def _refuse_redirect(
    session: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """Refuse redirects: a server could make devices send requests within their private network."""
    target = printable(redirect.response.headers.get("Location", ""))
    if not target:
        return
    raise ConfigError(
        f"{redirect.url} sends this device on to {target}: if that is the server, name it in client.server"
    )


_PIECE_SECONDS = 0.05
"""A piece transferred at once takes this many seconds at the rate."""

_MIN_PIECE, _MAX_PIECE = 256, 1 << 16

_LAST_SECONDS = 2.0


class RateLimitedConnector(aiohttp.TCPConnector):
    """A TCPConnector with a rate limit in bytes per second, for both directions together."""

    def __init__(self, rate: float, tls: ssl.SSLContext | bool) -> None:
        super().__init__(ssl=tls)
        self._allowance = Allowance(rate, asyncio.get_running_loop().time())
        self._piece = int(min(max(rate * _PIECE_SECONDS, _MIN_PIECE), _MAX_PIECE))
        self._carrying: set[asyncio.Task[None]] = set()

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: Any,
        req: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # its parent's
        client_error: type[Exception] = aiohttp.ClientConnectorError,
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """Override aiohttp's private method, since it has no public hook; errors are the same."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout.sock_connect):
                outer = await aiohappyeyeballs.start_connection(
                    addr_infos, loop=loop, socket_factory=self._socket
                )
            inner, other = socket.socketpair()
            for end in (outer, inner, other):
                end.setblocking(False)
            carrying = asyncio.create_task(self._forward_both(other, outer))
            self._carrying.add(carrying)
            carrying.add_done_callback(self._carrying.discard)
            made: tuple[Any, Any] = await loop.create_connection(*args, **kwargs, sock=inner)
            return made
        except ssl.CertificateError as error:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
        except ssl.SSLError as error:
            raise aiohttp.ClientConnectorSSLError(req.connection_key, error) from error
        except TimeoutError:
            raise
        except OSError as error:
            raise client_error(req.connection_key, error) from error

    def _socket(self, address: Any) -> socket.socket:
        """Return a socket with a small receive buffer: bytes that the kernel buffers escape the limit."""
        made = socket.socket(*address[:3])
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, max(1 << 12, 2 * self._piece))
        return made

    async def _forward_both(self, inner: socket.socket, outer: socket.socket) -> None:
        """Transfer both ways until this end closes or the connection is lost."""
        down = asyncio.create_task(self._forward(outer, inner))
        try:
            with suppress(OSError):
                await self._forward(inner, outer)
        finally:
            down.cancel()
            await asyncio.wait((down,))
            inner.close()
            outer.close()

    async def _forward(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while octets := await loop.sock_recv(source, self._piece):
                await asyncio.sleep(self._allowance.spend(len(octets), loop.time()))
                await loop.sock_sendall(target, octets)
        finally:
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

    async def drain(self) -> None:
        """Wait until the last bytes are sent, after all connections were closed; at most _LAST_SECONDS."""
        if self._carrying:
            _, late = await asyncio.wait(self._carrying, timeout=_LAST_SECONDS)
            for carrying in late:
                carrying.cancel()
            if late:
                await asyncio.wait(late)
