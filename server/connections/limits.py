"""All connections together: how many there may be, and what they may hold."""

import asyncio
import ipaddress
import math
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from edgeflock.server.connections.connection import GuardedConnection
from edgeflock.server.connections.handshake import Handshake, with_small_buffers
from edgeflock.shared.settings.limits import LimitSettings

_LOOK = 0.25
"""Seconds between looks at the clock for whoever has begun something."""


@dataclass(frozen=True, slots=True)
class ConnectionTerms:
    """What connections may cost."""

    request_seconds: float
    """From a connection's first moment to the end of its request's head, and for a body."""
    message_seconds: float
    """From a message's first byte to its last."""
    strangers: int
    """Connections that have shown no token yet."""
    address_connections: int
    """Connections from one address."""
    inflight_bytes: int
    """Of messages of all connections that are not finished, or that nobody has taken yet."""

    @classmethod
    def of(cls, limits: LimitSettings) -> "ConnectionTerms":
        return cls(
            limits.request_seconds,
            limits.message_seconds,
            limits.strangers,
            limits.address_connections,
            limits.inflight_bytes,
        )


class ConnectionLimits:
    """Of one server."""

    def __init__(self, terms: ConnectionTerms) -> None:
        self.terms = terms
        self.held = 0
        """Bytes of unfinished messages."""
        self._doors: dict[object, GuardedConnection] = {}
        """By the meter of the connection (roster/traffic.py), which is what a request knows of it."""
        self._strangers: dict[GuardedConnection | Handshake, None] = {}
        """The oldest first."""
        self._shaking: dict[Handshake, str] = {}
        """Those with a TLS handshake under way, and from where they are."""
        self._addresses: Counter[str] = Counter()
        self._counted: dict[GuardedConnection, tuple[str, object]] = {}
        self._pending: set[GuardedConnection] = set()
        """Those that have a time."""
        self._holding: set[GuardedConnection] = set()
        self._look: asyncio.TimerHandle | None = None

    def protocol(self, inner: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """A protocol factory with a door before each of `inner`'s protocols."""

        def factory() -> asyncio.Protocol:
            protocol = inner()
            assert isinstance(protocol, asyncio.Protocol)
            return GuardedConnection(protocol, self, self.terms.request_seconds, self.terms.message_seconds)

        return factory

    def behind_tls(
        self, inner: Callable[[], asyncio.Protocol], tls: ssl.SSLContext
    ) -> Callable[[], asyncio.Protocol]:
        """A protocol factory: `inner`'s protocols are for who gets through a TLS handshake in time."""
        with_small_buffers()
        return lambda: Handshake(inner, self, tls, self.terms.request_seconds)

    def of(self, transport: asyncio.BaseTransport | None) -> GuardedConnection | None:
        """The door of a request's transport; None once the connection is lost."""
        return None if transport is None else self._doors.get(transport.get_extra_info("meter"))

    # What a door tells

    def enter(self, door: GuardedConnection) -> str | None:
        """A connection is made; why it cannot be taken, if it cannot."""
        source = source_of(door.address)
        if self._addresses[source] >= self.terms.address_connections:
            most = self.terms.address_connections
            return f"{door.address} has {most} connections (limits.address_connections)"
        meter = door.transport.get_extra_info("meter")
        self._addresses[source] += 1
        self._doors[meter] = door
        self._counted[door] = source, meter
        self._count_stranger(door)
        return None

    def leave(self, door: GuardedConnection) -> None:
        """It is lost, or hung up on. Told again, it changes nothing."""
        counted = self._counted.pop(door, None)
        if counted is None:
            return
        source, meter = counted
        self._leave_address(source)
        del self._doors[meter]
        self._strangers.pop(door, None)
        self._pending.discard(door)
        self._holding.discard(door)
        self.held -= door.held

    def begin(self, door: GuardedConnection, *, known: bool) -> None:
        """A request is being answered, and `known` is whether its token is."""
        if known:
            self._strangers.pop(door, None)

    def watch(self, door: GuardedConnection) -> None:
        """Its `due` has changed."""
        if door.due == math.inf:
            self._pending.discard(door)
        elif door in self._counted:
            self._pending.add(door)
            self._start_looking()

    def hold(self, door: GuardedConnection, more: int) -> None:
        """It holds so many bytes more. Whoever has held the most for the longest goes if that is too much."""
        if door not in self._counted:
            return
        self.held += more
        (self._holding.add if door.held else self._holding.discard)(door)
        if self.held > self.terms.inflight_bytes:
            now = asyncio.get_running_loop().time()
            while self.held > self.terms.inflight_bytes and self._holding:
                max(self._holding, key=lambda one: one.held * (now - one.since + _LOOK)).make_room()

    # What a handshake tells

    def knock(self, stranger: Handshake) -> bool:
        """A connection is made that is to speak TLS; whether it may go on."""
        source = source_of(stranger.address)
        if self._addresses[source] >= self.terms.address_connections:
            return False
        self._addresses[source] += 1
        self._shaking[stranger] = source
        self._count_stranger(stranger)
        return True

    def go(self, stranger: Handshake) -> None:
        """It is lost, or has got through its handshake. Told again, it changes nothing."""
        if (source := self._shaking.pop(stranger, None)) is not None:
            self._leave_address(source)
            self._strangers.pop(stranger, None)

    def close(self) -> None:
        """The server stops: whoever has not got through yet need not."""
        for stranger in list(self._shaking):
            stranger.turn_away("the server stops")

    # Counting and looking

    def _count_stranger(self, stranger: GuardedConnection | Handshake) -> None:
        """One too many costs the oldest its place."""
        self._strangers[stranger] = None
        if len(self._strangers) > self.terms.strangers:
            oldest = next(iter(self._strangers))
            oldest.turn_away(f"{self.terms.strangers} connections have shown no token yet (limits.strangers)")

    def _leave_address(self, source: str) -> None:
        self._addresses[source] -= 1
        if not self._addresses[source]:
            del self._addresses[source]

    def _start_looking(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK, self._look_around)

    def _look_around(self) -> None:
        self._look = None
        now = asyncio.get_running_loop().time()
        for door in [door for door in self._pending if door.due <= now]:
            door.overdue()
        if self._pending:
            self._start_looking()


def source_of(address: str) -> str:
    """Who is counted as one: an IPv4 address, or the 64 bits of an IPv6 one that a site is given."""
    if ":" not in address:
        return address
    bare = address.partition("%")[0]
    return str(ipaddress.ip_network((bare, 64), strict=False))
