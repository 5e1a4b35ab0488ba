"""What takes its time to open and to close, in a thread: the event loop goes on meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def in_a_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave `context` in one thread. Whoever is cancelled meanwhile waits until that is done, so
    that nothing is left half open.
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
    """Raises CancelledError only once the job is over, one way or another."""
    cancelled = False
    while not job.done():
        waiting = asyncio.wrap_future(job)
        # What it raises is the job's, which is raised below: nobody is to complain that it was not looked at.
        waiting.add_done_callback(lambda over: over.cancelled() or over.exception())
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return job.result()
