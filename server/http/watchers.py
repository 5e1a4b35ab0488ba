"""Monitors of the run: a WebSocket each, `GET /v1/feed`. A slow socket gets fewer frames."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from aiohttp import WSCloseCode, web

from edgeflock.server.monitoring.feed import Feed
from edgeflock.server.roster import Hub
from edgeflock.shared.errors import Unauthorized
from edgeflock.shared.protocol.feed import encode
from edgeflock.shared.protocol.frames import Role

HEARTBEAT = 20.0
"""Seconds of silence before a watcher is pinged. One that does not answer within ten is disconnected."""

_CLOSE_SECONDS = 2.0

_LONGEST = 1024
"""The most bytes of a watcher's message. Watchers have nothing to send."""


class Watchers:
    """At most `limit` monitors at a time."""

    def __init__(self, hub: Hub, feed: Feed, limit: int) -> None:
        self.limit = limit
        self._hub = hub
        self._feed = feed
        self._sockets: dict[web.WebSocketResponse, tuple[asyncio.Transport, Callable[[], bool]]] = {}

    @property
    def full(self) -> bool:
        return len(self._sockets) >= self.limit

    async def serve(
        self, request: web.Request, role: Role, interval: float, may_watch: Callable[[], bool]
    ) -> web.WebSocketResponse:
        """Send a snapshot, then the changes every `interval` seconds.

        It ends when either side closes, or when `may_watch` returns False.
        """
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT, compress=False, max_msg_size=_LONGEST, timeout=_CLOSE_SECONDS
        )
        transport = request.transport
        assert transport is not None, "a request that is being handled has one"
        self._sockets[socket] = transport, may_watch  # before the first await, so that `limit` holds
        self._hub.watchers = len(self._sockets)
        sending: asyncio.Task[None] | None = None
        try:
            await socket.prepare(request)
            sending = asyncio.create_task(self._send(socket, role, interval))
            async for _ in socket:
                await self._close(socket, transport, WSCloseCode.UNSUPPORTED_DATA)
        finally:
            del self._sockets[socket]
            self._hub.watchers = len(self._sockets)
            if sending is not None:
                sending.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await sending
            if has_unsent(transport):  # the peer may never read the rest, which would stay in memory
                transport.abort()
        return socket

    async def close(self) -> None:
        """Close all sockets, because the server stops."""
        sockets = [(one, transport) for one, (transport, _) in self._sockets.items()]
        await asyncio.gather(*(self._close(*one, WSCloseCode.GOING_AWAY) for one in sockets))

    async def close_revoked(self) -> None:
        """Close the sockets of monitors that may no longer watch."""
        gone = [(one, transport) for one, (transport, may_watch) in self._sockets.items() if not may_watch()]
        await asyncio.gather(*(self._close(*one, 4000 + Unauthorized.status) for one in gone))

    async def _send(self, socket: web.WebSocketResponse, role: Role, interval: float) -> None:
        (transport, may_watch), seen = self._sockets[socket], None
        while may_watch():  # a token may expire
            frame, seen = await self._feed.next_frame(role, seen)
            await socket.send_bytes(encode(frame))
            del frame  # it may be large
            await _wait_for_next(transport, interval)
        await self._close(socket, transport, 4000 + Unauthorized.status)

    async def _close(self, socket: web.WebSocketResponse, transport: asyncio.Transport, code: int) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await socket.close(code=code)
        except (TimeoutError, ConnectionError):
            transport.abort()


async def _wait_for_next(transport: asyncio.Transport, interval: float) -> None:
    """Wait until the next frame is due and the last one is sent. The next frame has what was skipped."""
    while True:
        await asyncio.sleep(interval)
        if not has_unsent(transport):
            return


def has_unsent(transport: asyncio.Transport) -> bool:
    """Whether unsent bytes wait in it. A TLS transport that was closed twice has no buffer to ask for."""
    try:
        return transport.get_write_buffer_size() > 0
    except AttributeError:
        return False
