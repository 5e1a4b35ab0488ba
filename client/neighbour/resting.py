"""No more processor time than an owner allows, by rests between two batches."""

import threading
import time
from collections.abc import Callable

from edgeflock.client.allowance import Allowance


class Resting:
    """Rests long enough that this process takes `share` of a core.

    By what the process has used, all of its threads, not by what its steps took: on a busy machine a step
    takes long and costs little. A batch is never interrupted: one that takes more than a second is followed
    by a rest in proportion.
    """

    def __init__(
        self,
        share: float | None,
        used: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`used` is seconds of processor time, `now` seconds. A share of None is all there is."""
        self._used, self._now = used, now
        self._allowance = None if share is None else Allowance(share, now())
        self._before = used()
        self._over = threading.Event()

    def begin(self) -> None:
        """Training begins: what making ready took is not counted."""
        self._before = self._used()
        if self._allowance is not None:
            self._allowance.begin(self._now())

    def rest(self) -> None:
        """In the thread that computes, before each batch."""
        if self._allowance is None:
            return
        used = self._used()
        seconds = self._allowance.spend(used - self._before, self._now())
        self._before = used
        if seconds:
            self._over.wait(seconds)

    def close(self) -> None:
        """Nobody rests any more."""
        self._over.set()
