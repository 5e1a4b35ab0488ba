"""An asyncio event loop on a virtual clock: when nobody can run, time jumps to the next timer.

Sleeping takes no time, and a program's schedule depends on its own sleeps alone: the same program runs the
same way every time. Sockets, threads and processes live in real time and have no place in such a loop.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` from virtual second 0 to its end. Raises RuntimeError if it waits for what cannot come."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` is the virtual seconds since its start."""

    _clock_resolution: float

    def __init__(self) -> None:
        self._clock = _Jump()
        super().__init__(self._clock)
        # Timers this close count as one. Far above the spacing of floats for thirty virtual years.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._clock.now


class _Jump(selectors.SelectSelector):
    """Where a selector waits for files until a timeout, this one moves the clock on by it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set: nothing can happen any more")
        self.now += timeout
        return []
