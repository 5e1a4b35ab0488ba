"""Bytes counted where they pass: at the socket, HTTP and WebSocket framing included (TCP/IP and TLS not).

A metered protocol stands between asyncio and aiohttp's own, so that the count needs nothing of aiohttp's
insides: what arrives is counted before aiohttp sees it, what leaves after aiohttp has framed it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from edgeflock.shared.messages import Record


class Meter:
    """Bytes in and out of one connection, or of several."""

    __slots__ = ("egress", "ingress")

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.ingress = ingress
        self.egress = egress


class Traffic:
    """The server's traffic: in total, and by record kind for the sessions."""

    def __init__(self, ingress: int = 0, egress: int = 0) -> None:
        self.total = Meter(ingress, egress)
        self.received: Counter[type[Record]] = Counter()
        self.sent: Counter[type[Record]] = Counter()

    def protocol(self, inner: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """A protocol factory that meters what `inner`'s protocols see."""

        def factory() -> asyncio.Protocol:
            protocol = inner()
            assert isinstance(protocol, asyncio.Protocol)
            return _MeteredProtocol(protocol, self.total)

        return factory


class _MeteredProtocol(asyncio.Protocol):
    def __init__(self, inner: asyncio.Protocol, total: Meter) -> None:
        self._inner = inner
        self._total = total
        self._own = Meter()
        self.pause_writing = inner.pause_writing
        self.resume_writing = inner.resume_writing
        self.eof_received = inner.eof_received
        self.connection_lost = inner.connection_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._inner.connection_made(_MeteredTransport(transport, self._own, self._total))

    def data_received(self, data: bytes) -> None:
        self._own.ingress += len(data)
        self._total.ingress += len(data)
        self._inner.data_received(data)


class _MeteredTransport(asyncio.Transport):
    """The transport as aiohttp sees it; get_extra_info("meter") is the connection's Meter."""

    def __init__(self, inner: asyncio.Transport, own: Meter, total: Meter) -> None:
        super().__init__()
        self._inner = inner
        self._own = own
        self._total = total
        self.is_closing = inner.is_closing
        self.close = inner.close
        self.abort = inner.abort
        self.pause_reading = inner.pause_reading
        self.resume_reading = inner.resume_reading
        self.is_reading = inner.is_reading
        self.get_write_buffer_size = inner.get_write_buffer_size
        self.get_write_buffer_limits = inner.get_write_buffer_limits
        self.set_write_buffer_limits = inner.set_write_buffer_limits
        self.can_write_eof = inner.can_write_eof
        self.write_eof = inner.write_eof
        self.set_protocol = inner.set_protocol
        self.get_protocol = inner.get_protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._own if name == "meter" else self._inner.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._count(len(data))
        self._inner.write(data)

    def writelines(self, list_of_data: Any) -> None:
        parts = list(list_of_data)
        self._count(sum(len(part) for part in parts))
        self._inner.writelines(parts)

    def _count(self, size: int) -> None:
        self._own.egress += size
        self._total.egress += size
