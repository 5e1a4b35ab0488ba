"""A slow context in a thread, so that the event loop goes on while it opens and closes."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def enter_in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave `context` in one thread.

    A cancelled caller waits until this is done, so that nothing stays half open.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="edgeflock-opening")
    try:
        entering = thread.submit(context.__enter__)
        try:
            entered = await _result(entering)
        except asyncio.CancelledError:
            if not entering.cancelled() and entering.exception() is None:
                await _result(thread.submit(context.__exit__, None, None, None))
            raise
        try:
            yield entered
        finally:
            await _result(thread.submit(context.__exit__, None, None, None))
    finally:
        thread.shutdown()


async def _result(job: "Future[T]") -> T:
    """Wait for the job and return its result. Raises CancelledError only after the end of the job."""
    cancelled = False
    while not job.done():
        waiting = asyncio.wrap_future(job)
        # Read the exception, so that asyncio does not log it as unread. The last line raises it.
        waiting.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return job.result()
