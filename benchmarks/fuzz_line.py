"""A device's end of a connection in memory, without sockets: fuzz_server.py attacks through it."""

import asyncio
import base64
import os
from collections.abc import Callable
from typing import Any

import msgpack

from benchmarks.fuzz_frames import framed

SECONDS = 120.0
"""Within which whatever is asked is answered, on however busy a machine."""


class Line(asyncio.Transport):
    """A device's end of a connection in memory: what the server writes is read as frames."""

    def __init__(self, factory: Callable[[], asyncio.Protocol]) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self.closed = self.ponged = False
        self.answers: list[list[Any]] = []
        self.code = 0
        self._came = asyncio.Event()
        self._buffer = b""
        self._upgraded = False
        self._protocol = factory()
        self._protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._buffer += bytes(data)
        self._read()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._came.set()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def send(self, octets: bytes) -> None:
        if not self.closed:
            self._came.clear()
            self._protocol.data_received(octets)

    async def join(self, name: str) -> list[Any]:
        """The Welcome."""
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            "GET /v1/session HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while not self._upgraded and not self.closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.send(framed(msgpack.packb([1, 2, name, b"", {}, True])))
        return await self.answer(SECONDS)

    async def heard(self, seconds: float) -> None:
        """Until the server has answered a ping, or hung up."""
        async with asyncio.timeout(seconds):
            while not self.ponged and not self.closed:
                await self._came.wait()
                self._came.clear()

    async def answer(self, seconds: float) -> list[Any]:
        """The next record; [] if the server hangs up, TimeoutError if nothing comes."""
        async with asyncio.timeout(seconds):
            while not self.answers and not self.closed:
                await self._came.wait()
                self._came.clear()
        return self.answers.pop(0) if self.answers else []

    def _read(self) -> None:
        if not self._upgraded:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self._upgraded, self._buffer = head.startswith(b"HTTP/1.1 101 "), rest
        while len(self._buffer) >= 2:
            length, at = self._buffer[1], 2
            if length > 125:
                at = 4 if length == 126 else 10
                length = int.from_bytes(self._buffer[2:at], "big")
            if len(self._buffer) < at + length:
                return
            opcode, payload = self._buffer[0] & 15, self._buffer[at : at + length]
            self._buffer = self._buffer[at + length :]
            if opcode == 2:
                self.answers.append(msgpack.unpackb(payload))
                self._came.set()
            elif opcode == 9:
                self.send(framed(payload, 0x8A))
            elif opcode == 10:
                self.ponged = True
                self._came.set()
            elif opcode == 8:
                self.code = int.from_bytes(payload[:2], "big")
                self.close()
