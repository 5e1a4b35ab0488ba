"""Counts bytes at the socket, including HTTP and WebSocket framing, without TCP/IP and TLS.

A metered protocol wraps aiohttp's own, so that the count does not depend on aiohttp's internals. Received
bytes are counted before aiohttp sees them, sent bytes after aiohttp has framed them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

from edgeflock.shared.protocol.messages import Record


class Meter:
    """Bytes in and out of one connection, or of several."""

    __slots__ = ("egress", "ingress", "internal")

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.ingress = ingress
        self.egress = egress
        self.internal = False
        """Whether it is a gateway's line. The gateway counts the bytes of its devices itself."""


class Traffic:
    """The server's traffic: in total, and by record kind for the sessions."""

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.total = Meter(ingress, egress)
        self.received: Counter[type[Record]] = Counter()
        self.sent: Counter[type[Record]] = Counter()

    def protocol(self, inner: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """A protocol factory that meters the traffic of `inner`'s protocols."""

        def factory() -> asyncio.Protocol:
            protocol = inner()
            assert isinstance(protocol, asyncio.Protocol)
            return cast(asyncio.Protocol, _MeteredProtocol(protocol, self.total))

        return factory


class _MeteredProtocol:
    """An asyncio protocol that counts received bytes and forwards all calls."""

    def __init__(self, inner: asyncio.Protocol, total: Meter) -> None:
        self._inner = inner
        self._total = total
        self._own = Meter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connection_made(self, transport: asyncio.Transport) -> None:
        metered = _MeteredTransport(transport, self._own, self._total)
        self._inner.connection_made(cast(asyncio.Transport, metered))

    def data_received(self, data: bytes) -> None:
        self._own.ingress += len(data)
        if not self._own.internal:
            self._total.ingress += len(data)
        self._inner.data_received(data)


class _MeteredTransport:
    """The transport as aiohttp sees it; get_extra_info("meter") is the connection's Meter."""

    def __init__(self, inner: asyncio.Transport, own: Meter, total: Meter) -> None:
        self._inner = inner
        self._own = own
        self._total = total

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._own if name == "meter" else self._inner.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._count(len(data))
        self._inner.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        octets = list(parts)
        self._count(sum(len(part) for part in octets))
        self._inner.writelines(octets)

    def _count(self, size: int) -> None:
        self._own.egress += size
        if not self._own.internal:
            self._total.egress += size
