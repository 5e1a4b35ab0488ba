"""The queue of outgoing items on a gateway's line, at either end. A message holds many items."""

import asyncio
from typing import Protocol

from edgeflock.shared.protocol import gateway


class Socket(Protocol):
    async def send_bytes(self, data: bytes, /) -> None: ...


class Outbox:
    """Packed items, in order."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self.waiting = 0
        """Bytes that it holds."""
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
        """Send all items until cancelled or disconnected. The socket's reader notices the loss, too."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._items:
                    batch, size = gateway.batch(self._items)
                    await socket.send_bytes(gateway.message(batch))
                    self.waiting -= size
        except ConnectionError:
            pass
