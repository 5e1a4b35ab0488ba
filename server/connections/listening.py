"""Listening sockets of a server or a gateway, with connection limits and byte counts."""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from edgeflock.server.connections import ConnectionLimits
from edgeflock.server.connections.forwarding import ForwardedConnection
from edgeflock.server.connections.traffic import Traffic
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.logs import OncePerMinute

log = logging.getLogger("edgeflock.server.requests")
"""For aiohttp, without what is no HTTP: its sender gets the reason, and could fill the log."""
log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
logging.getLogger("asyncio").addFilter(OncePerMinute("socket.accept() out of system resource"))

Factory = Callable[[], asyncio.BaseProtocol]
"""Makes the protocol of a connection."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class _ListeningSocket(socket.socket):
    """Accepts nothing for a moment, once no file descriptor or memory was free for a connection.

    asyncio calls `accept` up to `backlog` times in a row. Each failure would be a line in the log and one
    more timer that tries again a second later.
    """

    _waits_until = 0.0

    def accept(self) -> tuple[socket.socket, object]:
        if time.monotonic() < self._waits_until:
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._waits_until = time.monotonic() + 0.5
            raise


@asynccontextmanager
async def listen_on(
    app: web.Application,
    connection_limits: ConnectionLimits,
    traffic: Callable[[], Traffic],
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    sockets: list[socket.socket] | None = None,
    wrap: Callable[[Factory], Factory] = lambda protocol: protocol,
) -> AsyncIterator[int]:
    """Serve `app` while the context lasts, as `bind` does. Yields the port; port 0 means a free one.

    `wrap` puts a protocol between each connection and the one of `app`.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2, logger=log)
    await runner.setup()
    try:
        assert runner.server is not None, "set up just now"
        protocol = connection_limits.protocol(wrap(runner.server), traffic().total)
        if tls is not None:
            protocol = connection_limits.tls_protocol(protocol, tls)
        try:
            async with bind(protocol, host, port, sockets) as number:
                yield number
        finally:
            connection_limits.close()
    finally:
        await runner.cleanup()


@asynccontextmanager
async def bind(
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    sockets: list[socket.socket] | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Listen while the context lasts. Yields the port. Raises EdgeflockError if it cannot listen.

    Copies of the sockets are stored in `sockets`, and keep listening after the context. Later connections
    wait until the next call with the same `sockets` accepts them. A Unix socket is that of a server of
    several runs, which forwards connections.
    """
    loop = asyncio.get_running_loop()
    servers: list[asyncio.Server] = []
    try:
        try:
            bound = [one.dup() for one in sockets or ()]
            if not bound:
                binding = await loop.create_server(protocol, host, port, start_serving=False)
                bound = [one.dup() for one in binding.sockets]
                binding.close()
                if sockets is not None:
                    sockets += [one.dup() for one in bound]
            for one in bound:
                is_forwarded = one.family == getattr(socket, "AF_UNIX", None)
                made = (lambda: ForwardedConnection(protocol)) if is_forwarded else protocol
                listening = _ListeningSocket(fileno=one.detach())
                servers.append(await loop.create_server(made, sock=listening, ssl=tls, backlog=1024))
        except OSError as error:
            raise EdgeflockError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another host or port "
                "(server.host, server.port; of a gateway --host, --port), or end what listens there"
            ) from error
        name = servers[0].sockets[0].getsockname()
        yield name[1] if isinstance(name, tuple) else 0
    finally:
        try:
            for server in servers:
                for one in server.sockets:
                    loop.remove_reader(one.fileno())
            # Give a connection that was just accepted its protocol. Otherwise asyncio leaves it open.
            await asyncio.sleep(0)
        finally:
            for server in servers:
                server.close()
