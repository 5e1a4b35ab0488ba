"""One session's socket. What a server says there is no longer than it may be, and says what a record can say;
else the device's part ends with a ServerAtFault.
"""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp

from edgeflock.client.transport.retrying import ANSWER_SECONDS
from edgeflock.shared.errors import (
    REFUSALS,
    FrameTooLarge,
    Refused,
    RunOver,
    ServerAtFault,
    SessionRefused,
)
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Over, Record, Refusal, Samples, Stop
from edgeflock.shared.protocol.shown import shown

_CLOSE_SECONDS = 2.0
"""How long a server may take to take leave."""

_PING_SECONDS = 1.0
"""How long a ping may take to leave."""

_LONG = 1024
"""Bytes: pings are shorter, with TLS, too."""


class RecordSession:
    """Records out, and records in."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        longest: int,
        rate: float,
        note: Callable[[Record], None],
    ) -> None:
        """`rate` is that of the line in bytes a second, infinite if it has no limit; `note` gets what comes
        between answers without being asked for.
        """
        self._socket, self._rate, self._note = socket, rate, note
        self.longest = longest
        """Bytes of a message."""
        self._signs = self._unsent = 0
        """Of life, and bytes that had not left when it was looked last."""

    async def send(self, octets: bytes) -> None:
        """If the server has hung up, what it said last tells why: whoever waits for an answer meets it."""
        with suppress(ConnectionError):
            await self._socket.send_bytes(octets)

    async def ask(self, octets: bytes) -> Record:
        """The answer to a question. Raises as `answer`."""
        await self.send(octets)
        return await self.answer()

    async def answer(self) -> Record:
        """The next record that is an answer. Raises what the server refused, or ConnectionError if it hung
        up.
        """
        async with asyncio.timeout(ANSWER_SECONDS + self.longest / self._rate):
            while isinstance(record := await self.next(), Samples | Over):
                self._note(record)
        return record

    async def next(self) -> Record:
        """The next record, whatever it is. Raises as `answer`."""
        message = await self._receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            return self._read(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            raise ServerAtFault("the server sent a text message, where all are binary")
        if message.type is aiohttp.WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            raise ServerAtFault(f"the server broke the WebSocket protocol: {shown(str(message.data))}")
        # The close frame itself: the socket's own close_code is 1006 once the line is gone.
        code = message.data if message.type is aiohttp.WSMsgType.CLOSE else self._socket.close_code
        if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            raise FrameTooLarge("the server takes no update of this size (limits.frame_bytes)")
        raise _refusal_of(code) or ConnectionResetError("the server hung up")

    def heard(self) -> int:
        """More than before if something has come, or something of a long message has left this machine."""
        before, self._unsent = self._unsent, _unsent(self._socket.get_extra_info("socket"))
        self._signs += self._unsent < before and before > _LONG
        return self._signs

    async def ping(self) -> None:
        """Ask for a sign of life. Where what was sent before it has not left, none is asked for."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_PING_SECONDS):
                await self._socket.ping()

    async def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Hang up. The server may take so long to take leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._socket.close()

    async def _receive(self) -> aiohttp.WSMessage:
        """The next message. Pings are answered here, and their answers counted."""
        while True:
            message = await self._socket.receive()
            self._signs += 1
            if message.type is aiohttp.WSMsgType.PING:
                with suppress(ConnectionError):
                    await self._socket.pong(message.data)
            elif message.type is not aiohttp.WSMsgType.PONG:
                return message

    def _read(self, octets: bytes) -> Record:
        """The record in a message. Raises what the server refused, RunOver, or ServerAtFault."""
        if len(octets) > self.longest:
            raise ServerAtFault(
                f"the server sent a message of {len(octets)} bytes; this run needs {self.longest} at most"
            )
        try:
            record = wire.decode(octets)
        except SessionRefused as error:
            raise ServerAtFault(f"the server sent what is no record: {shown(str(error))}") from error
        if isinstance(record, Refusal):
            refusal = REFUSALS.get(record.code, Refused)(shown(record.detail))
            refusal.seconds = record.seconds
            raise refusal
        if isinstance(record, Stop):
            raise RunOver(shown(record.reason))
        return record


def _refusal_of(close_code: int | None) -> SessionRefused | None:
    """The refusal that a private WebSocket close code stands for, if it came without its record."""
    for kind in REFUSALS.values():
        if issubclass(kind, SessionRefused) and close_code == 4000 + kind.status:
            return kind(f"the server closed the session: {kind.code}")
    return None


def _unsent(line: Any) -> int:
    """Bytes that the other end's system has not confirmed: over a slow line they take their time. 0 where the
    system does not say.
    """
    try:
        import fcntl
        import termios

        (octets,) = struct.unpack("i", fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(4)))
    except (ImportError, OSError, AttributeError):
        return 0
    return int(octets)
