"""Counts bytes at the socket, including HTTP and WebSocket framing, without TCP/IP and TLS.

Received bytes are counted before aiohttp sees them (connection.py), sent bytes after aiohttp has framed them.
So the count does not depend on aiohttp's internals.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from edgeflock.shared.protocol.messages import Record


class Meter:
    """Bytes in and out of one connection, or of several."""

    __slots__ = ("egress", "ingress", "internal")

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.ingress = ingress
        self.egress = egress
        self.internal = False
        """Whether its bytes are no part of the total. So it is for a gateway's line, which counts its devices
        itself, for a server of several runs that asks, and for a base, which has a count of its own."""

    def count_received(self, size: int, total: "Meter") -> None:
        """Count bytes of a connection, also in the server's total."""
        self.ingress += size
        if not self.internal:
            total.ingress += size

    def count_sent(self, size: int, total: "Meter") -> None:
        self.egress += size
        if not self.internal:
            total.egress += size


class Traffic:
    """The server's traffic: in total, and by record kind for the sessions."""

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.total = Meter(ingress, egress)
        self.received: Counter[type[Record]] = Counter()
        self.sent: Counter[type[Record]] = Counter()
        self.base = 0
        """Bytes of the frozen base that were sent, framing included. They are not in the total."""


class MeteredTransport:
    """A transport that counts what is sent. get_extra_info("meter") is the connection's Meter."""

    def __init__(self, inner: asyncio.Transport, own: Meter, total: Meter) -> None:
        self._inner = inner
        self._own = own
        self._total = total

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._own if name == "meter" else self._inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._own.count_sent(len(data), self._total)
        self._inner.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        octets = list(parts)
        self._own.count_sent(sum(len(part) for part in octets), self._total)
        self._inner.writelines(octets)


def address_of(transport: asyncio.BaseTransport) -> str:
    """The peer's address; empty if it is unknown."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
