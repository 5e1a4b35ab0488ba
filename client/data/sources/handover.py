"""Passes items from a blocking thread to the event loop, in bounded memory."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")


async def from_thread(blocking: Generator[Item, None, None], limit: int) -> AsyncGenerator[list[Item], None]:
    """Run `blocking` in its own thread and yield lists of its items, in order.

    At most `limit` items wait; until one is take, the thread blocks. Re-raises the generator's exceptions. A
    thread that blocks for ever ends with the process.
    """
    handover = _Handover[Item](limit)
    threading.Thread(target=handover.run, args=(blocking,), daemon=True).start()
    try:
        while items := await handover.take():
            yield items
    finally:
        handover.close()


class _Handover(Generic[Item]):
    def __init__(self, limit: int) -> None:
        self._room = threading.Semaphore(limit)
        self._items: deque[Item] = deque()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._ended = False
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
                self._notify()
        except BaseException as error:  # `take` raises it
            self._error = error
        finally:
            blocking.close()
            self._ended = True
            self._notify()

    async def take(self) -> list[Item]:
        """Return the waiting items, at least one. An empty list means the end."""
        while True:
            ended = self._ended  # read first: no item follows it
            items = [self._items.popleft() for _ in range(len(self._items))]
            if items:
                self._room.release(len(items))
                return items
            if ended:
                if self._error is not None:
                    raise self._error
                return []
            await self._changed.wait()
            self._changed.clear()

    def close(self) -> None:
        self._closed = True
        self._room.release()

    def _notify(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads
            self._loop.call_soon_threadsafe(self._changed.set)
