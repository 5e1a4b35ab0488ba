"""Limits over all connections: their number and the bytes that they may hold."""

import asyncio
import ipaddress
import math
import ssl
from collections import Counter
from collections.abc import Callable

from edgeflock.server.connections.connection import GuardedConnection
from edgeflock.server.connections.handshake import Handshake, shrink_buffers
from edgeflock.server.connections.traffic import Meter
from edgeflock.shared.settings.limits import LimitSettings

_INTERVAL = 0.25
"""Seconds between two checks for late connections."""


class ConnectionLimits:
    """Counts and limits the connections of one server."""

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.held_bytes = 0
        """Bytes of messages that are unfinished or not taken yet."""
        self._connections: dict[Meter, GuardedConnection] = {}
        """Meter -> its connection. A request's transport gives the meter."""
        self._strangers: dict[GuardedConnection | Handshake, None] = {}
        """Connections without a token, the oldest first."""
        self._addresses: Counter[str] = Counter()
        self._counted: dict[GuardedConnection | Handshake, str] = {}
        """Each connection, also one in its TLS handshake -> its source address."""
        self._pending: set[GuardedConnection] = set()
        """Connections with a finite `due`."""
        self._holding: set[GuardedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def protocol(
        self, inner: Callable[[], asyncio.BaseProtocol], total: Meter
    ) -> Callable[[], asyncio.Protocol]:
        """Return a protocol factory that wraps each of `inner`'s protocols in a `GuardedConnection`.

        `total` counts the bytes of all of them.
        """

        def factory() -> asyncio.Protocol:
            protocol, limits = inner(), self.limits
            assert isinstance(protocol, asyncio.Protocol)
            return GuardedConnection(protocol, self, total, limits.request_seconds, limits.message_seconds)

        return factory

    def tls_protocol(
        self, inner: Callable[[], asyncio.Protocol], tls: ssl.SSLContext
    ) -> Callable[[], asyncio.Protocol]:
        """Return a protocol factory that creates `inner`'s protocol after a TLS handshake in time."""
        shrink_buffers()
        return lambda: Handshake(inner, self.enter, self.leave, tls, self.limits.request_seconds)

    def find(self, transport: asyncio.BaseTransport | None) -> GuardedConnection | None:
        """Return the guarded connection of a request's transport; None once the connection is lost."""
        return None if transport is None else self._connections.get(transport.get_extra_info("meter"))

    def enter(self, stranger: GuardedConnection | Handshake) -> str | None:
        """Register a new connection. Return the reason if it is refused, else None.

        Over the limit of connections without a token, the oldest of them is closed.
        """
        source, limit = source_of(stranger.address), self.limits.address_connections
        if self._addresses[source] >= limit:
            return f"{stranger.address} has {limit} connections (limits.address_connections)"
        self._addresses[source] += 1
        self._counted[stranger], self._strangers[stranger] = source, None
        if isinstance(stranger, GuardedConnection):
            self._connections[stranger.meter] = stranger
        if len(self._strangers) > self.limits.unauthenticated:
            oldest = next(iter(self._strangers))
            oldest.reject(
                f"{self.limits.unauthenticated} connections have shown no token yet (limits.unauthenticated)"
            )
        return None

    def leave(self, stranger: GuardedConnection | Handshake) -> None:
        """Unregister a connection that is lost, closed, or has completed its TLS handshake. Idempotent."""
        source = self._counted.pop(stranger, None)
        if source is None:
            return
        self._addresses[source] -= 1
        if not self._addresses[source]:
            del self._addresses[source]
        self._strangers.pop(stranger, None)
        if isinstance(stranger, GuardedConnection):
            del self._connections[stranger.meter]
            self._pending.discard(stranger)
            self._holding.discard(stranger)
            self.held_bytes -= stranger.held_bytes

    def begin(self, connection: GuardedConnection, *, authenticated: bool) -> None:
        """A request is being answered; `authenticated`: whether its token is valid."""
        if authenticated:
            self._strangers.pop(connection, None)

    def watch(self, connection: GuardedConnection) -> None:
        """The connection's `due` has changed."""
        if connection.due == math.inf:
            self._pending.discard(connection)
        elif connection in self._counted:
            self._pending.add(connection)
            self._start_timer()

    def hold(self, connection: GuardedConnection, more: int) -> None:
        """Count `more` bytes. Over the limit, close the connections with the largest bytes x holding time."""
        if connection not in self._counted:
            return
        self.held_bytes += more
        (self._holding.add if connection.held_bytes else self._holding.discard)(connection)
        if self.held_bytes > self.limits.inflight_bytes:
            now = asyncio.get_running_loop().time()
            while self.held_bytes > self.limits.inflight_bytes and self._holding:
                max(self._holding, key=lambda one: one.held_bytes * (now - one.since + _INTERVAL)).evict()

    def close(self) -> None:
        """The server stops: abort all unfinished handshakes."""
        for stranger in [one for one in self._counted if isinstance(one, Handshake)]:
            stranger.reject("the server stops")

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._close_overdue)

    def _close_overdue(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in [connection for connection in self._pending if connection.due <= now]:
            connection.close_overdue()
        if self._pending:
            self._start_timer()


def source_of(address: str) -> str:
    """Return the source to count by: an IPv4 address, or the 64-bit network prefix of an IPv6 address."""
    if ":" not in address:
        return address
    bare = address.partition("%")[0]
    return str(ipaddress.ip_network((bare, 64), strict=False))
