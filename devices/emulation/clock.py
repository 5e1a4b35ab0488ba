"""An asyncio event loop on a virtual clock: when no task can run, time jumps to the next timer.

Sleeping takes no real time. A program's schedule depends on its own sleeps only, so the same program always
runs in the same way. Sockets, threads and processes need real time and cannot be used in such a loop.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` from virtual second 0 to its end. Raises RuntimeError if all tasks wait without a timer."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` is the virtual seconds since its start."""

    _clock_resolution: float

    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        super().__init__(self._clock)
        # Timers this close count as one. This is far above the spacing of floats for thirty virtual years.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._clock.seconds


class _VirtualSelector(selectors.SelectSelector):
    """A selector that advances the virtual clock by the timeout instead of waiting for files."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set: nothing can happen any more")
        self.seconds += timeout
        return []
