"""Passes items from a blocking thread to the event loop, in bounded memory."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")


async def from_thread(blocking: Generator[Item, None, None], most: int) -> AsyncGenerator[list[Item], None]:
    """Run `blocking` in its own thread and yield lists of its items, in order.

    At most `most` items wait; until one is taken, the thread blocks. Re-raises the generator's exceptions. A
    thread that blocks for ever ends with the process.
    """
    handover = _Handover[Item](most)
    threading.Thread(target=handover.run, args=(blocking,), daemon=True).start()
    try:
        while items := await handover.taken():
            yield items
    finally:
        handover.close()


class _Handover(Generic[Item]):
    def __init__(self, most: int) -> None:
        self._room = threading.Semaphore(most)
        self._items: deque[Item] = deque()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._over = False
        self._closed = False
        self._error: BaseException | None = None

    def run(self, blocking: Generator[Item, None, None]) -> None:
        """The body of the thread."""
        try:
            for item in blocking:
                self._room.acquire()
                if self._closed:
                    break
                self._items.append(item)
                self._tell()
        except BaseException as error:  # `taken` raises it
            self._error = error
        finally:
            blocking.close()
            self._over = True
            self._tell()

    async def taken(self) -> list[Item]:
        """Return the waiting items, at least one. An empty list means the end."""
        while True:
            over = self._over  # read first: no item follows it
            items = [self._items.popleft() for _ in range(len(self._items))]
            if items:
                self._room.release(len(items))
                return items
            if over:
                if self._error is not None:
                    raise self._error
                return []
            await self._changed.wait()
            self._changed.clear()

    def close(self) -> None:
        self._closed = True
        self._room.release()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads
            self._loop.call_soon_threadsafe(self._changed.set)
