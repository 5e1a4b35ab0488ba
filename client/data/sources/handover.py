"""From a thread that blocks to the event loop, in bounded memory."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")


async def from_thread(blocking: Generator[Item, None, None], most: int) -> AsyncGenerator[list[Item], None]:
    """What `blocking` yields in a thread of its own, together what has come meanwhile, in its order.

    At most `most` items wait; while they do, it is not asked for more. Raises what it raises. A thread that
    blocks for ever ends with the process.
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
        """In the thread."""
        try:
            for item in blocking:
                self._room.acquire()
                if self._closed:
                    break
                self._items.append(item)
                self._tell()
        except BaseException as error:  # whatever it is, it is told where the items are taken
            self._error = error
        finally:
            blocking.close()
            self._over = True
            self._tell()

    async def taken(self) -> list[Item]:
        """What has come, at least one item; none at the end."""
        while True:
            over = self._over  # looked at first: nothing comes behind it
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
        with suppress(RuntimeError):  # the loop is closed: nobody is interested
            self._loop.call_soon_threadsafe(self._changed.set)
