"""Connections that a server of several runs forwards to the server of one of them, over a Unix socket.

Before the bytes of a connection comes a preamble: two bytes with its length, then the `Origin` in msgpack.
The server of the run trusts it, since the socket is in a folder that only its own user may enter.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgpack

_LENGTH = struct.Struct(">H")


class ForwardedOrigin(NamedTuple):
    """Who has connected to the server of several runs, and how."""

    address: str
    port: int = 0
    secure: bool = False
    """Whether over TLS."""
    certificate: bytes = b""
    """The certificate, in DER, that the caller has shown and proved; empty: none."""
    role: str = ""
    """The role in all runs, viewer or admin, of a caller with a token of that server; empty: none."""
    account: str = ""
    """That token, for the audit log."""
    is_internal: bool = False
    """Whether that server itself asks, which does not count as traffic."""

    def encode(self) -> bytes:
        """Return the preamble."""
        body: bytes = msgpack.packb(list(self))
        return _LENGTH.pack(len(body)) + body


class ForwardedTransport:
    """A transport whose get_extra_info tells of the caller, not of the Unix socket."""

    def __init__(self, inner: asyncio.Transport, origin: ForwardedOrigin) -> None:
        self._inner = inner
        self._extra: dict[str, Any] = {
            "forwarded": origin,
            "peername": (origin.address, origin.port),
            "sslcontext": origin.secure or None,
            "ssl_object": _ShownCertificate(origin.certificate) if origin.secure else None,
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra[name] if name in self._extra else self._inner.get_extra_info(name, default)


class _ShownCertificate:
    """The one method of an ssl.SSLObject that the server calls."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def getpeercert(self, binary_form: bool = False) -> bytes | None:
        return self._certificate or None


class ForwardedConnection(asyncio.Protocol):
    """Reads the preamble, then gives the connection to a protocol of `inner`."""

    def __init__(self, inner: Callable[[], asyncio.BaseProtocol]) -> None:
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None, "connected"
        self._received += data
        if len(self._received) < _LENGTH.size:
            return
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return
        origin = ForwardedOrigin(*msgpack.unpackb(self._received[_LENGTH.size : end]))
        protocol, rest = self._inner(), self._received[end:]
        assert isinstance(protocol, asyncio.Protocol), "it takes bytes"
        self._transport.set_protocol(protocol)
        protocol.connection_made(cast(asyncio.Transport, ForwardedTransport(self._transport, origin)))
        if rest:
            protocol.data_received(rest)


def forwarded_origin(transport: asyncio.BaseTransport | None) -> ForwardedOrigin | None:
    """Who has connected by way of a server of several runs; None: the caller has connected directly."""
    origin: ForwardedOrigin | None = None if transport is None else transport.get_extra_info("forwarded")
    return origin
