"""The queue of outgoing items at either end of a gateway's connection. A message holds many items."""

import asyncio
from typing import Protocol

from edgeflock.shared.protocol import gateway_coding


class Socket(Protocol):
    async def send_bytes(self, data: bytes, /) -> None: ...


class Outbox:
    """Packed items that wait to be sent, in order."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self.waiting = 0
        """Bytes of items that are queued or being sent."""
        self._wake = asyncio.Event()

    def add(self, octets: bytes) -> None:
        """Add a packed item. It is sent with the next one, or on `wake`."""
        self._items.append(octets)
        self.waiting += len(octets)

    def wake(self) -> None:
        self._wake.set()

    def clear(self) -> None:
        """Drop all queued items."""
        self._items.clear()
        self.waiting = 0

    async def send_through(self, socket: Socket) -> None:
        """Send items until cancelled or disconnected. Raises nothing: the socket's reader notices it, too."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._items:
                    batch, size = gateway_coding.batch(self._items)
                    await socket.send_bytes(gateway_coding.message(batch))
                    self.waiting -= size
        except ConnectionError:
            pass
