"""The socket of one session. It checks the length and the format of the server's messages.

An invalid message ends the device's part with a ServerAtFault.
"""

import asyncio
import struct
from contextlib import suppress
from typing import Any

import aiohttp

from edgeflock.client.training.conversation import DeviceConversation
from edgeflock.client.transport.retrying import ANSWER_SECONDS
from edgeflock.shared.errors import REFUSALS, FrameTooLarge, ServerAtFault, SessionRefused
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Record
from edgeflock.shared.protocol.shown import printable

_CLOSE_SECONDS = 2.0
"""Longest wait in seconds for the server's close."""

_PING_SECONDS = 1.0
"""Longest wait in seconds to send a ping."""

_PING_BYTES = 1024
"""Bytes. Pings are shorter, also with TLS."""


class RecordSession:
    """Sends and receives records."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        longest: int,
        rate: float,
        conversation: DeviceConversation,
    ) -> None:
        """`rate` is the connection's rate limit in bytes per second, infinite if it has none."""
        self._socket, self._rate, self._conversation = socket, rate, conversation
        self.longest = longest
        """Largest message in bytes."""
        self._signs = self._unsent = 0
        """Signs of life, and bytes unsent at the last check."""

    async def send(self, octets: bytes) -> None:
        """Send a message. After a hang-up it does nothing, and `answer` raises the reason."""
        with suppress(ConnectionError):
            await self._socket.send_bytes(octets)

    async def ask(self, octets: bytes) -> Record:
        """Send a request and return the answer. Raises as `answer`."""
        await self.send(octets)
        return await self.answer()

    async def answer(self) -> Record:
        """Return the next answer. Raises the server's refusal, or ConnectionError if it hung up."""
        async with asyncio.timeout(ANSWER_SECONDS + self.longest / self._rate):
            while (record := await self.next()) is None:
                pass
        return record

    async def next(self) -> Record | None:
        """Wait for the next record, and return it if it may be an answer. Raises as `answer`."""
        message = await self._receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            return self._read(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            raise ServerAtFault("the server sent a text message, where all are binary")
        if message.type is aiohttp.WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            raise ServerAtFault(f"the server broke the WebSocket protocol: {printable(str(message.data))}")
        # The close frame itself: the socket's own close_code is 1006 once the line is gone.
        code = message.data if message.type is aiohttp.WSMsgType.CLOSE else self._socket.close_code
        if code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            raise FrameTooLarge("the server takes no update of this size (limits.frame_bytes)")
        raise _refusal_of(code) or ConnectionResetError("the server closed the connection")

    def count_signs(self) -> int:
        """Return a count that grows if bytes arrived, or part of a long message was sent."""
        before, self._unsent = self._unsent, _unsent(self._socket.get_extra_info("socket"))
        self._signs += self._unsent < before and before > _PING_BYTES
        return self._signs

    async def ping(self) -> None:
        """Ask for a sign of life. It is dropped after _PING_SECONDS if earlier data still wait."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_PING_SECONDS):
                await self._socket.ping()

    async def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Hang up, and wait at most `seconds` for the server's close."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._socket.close()

    async def _receive(self) -> aiohttp.WSMessage:
        """Return the next message. It answers pings and counts pongs as signs of life."""
        while True:
            message = await self._socket.receive()
            self._signs += 1
            if message.type is aiohttp.WSMsgType.PING:
                with suppress(ConnectionError):
                    await self._socket.pong(message.data)
            elif message.type is not aiohttp.WSMsgType.PONG:
                return message

    def _read(self, octets: bytes) -> Record | None:
        """Decode a message, and read it as the conversation does."""
        if len(octets) > self.longest:
            raise ServerAtFault(
                f"the server sent a message of {len(octets)} bytes; this run needs {self.longest} at most"
            )
        try:
            record = wire.decode(octets)
        except SessionRefused as error:
            raise ServerAtFault(f"the server sent an invalid record: {printable(str(error))}") from error
        return self._conversation.read(record)


def _refusal_of(close_code: int | None) -> SessionRefused | None:
    """Return the refusal that a private WebSocket close code means, if its record did not arrive."""
    for kind in REFUSALS.values():
        if issubclass(kind, SessionRefused) and close_code == 4000 + kind.status:
            return kind(f"the server closed the session: {kind.code}")
    return None


def _unsent(socket: Any) -> int:
    """Return the bytes that the other end has not confirmed; 0 if the system does not report them."""
    try:
        import fcntl
        import termios

        (octets,) = struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)))
    except (ImportError, OSError, AttributeError):
        return 0
    return int(octets)
