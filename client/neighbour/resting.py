"""Limits processor time to the owner's share, by rests between batches."""

import threading
import time
from collections.abc import Callable

from edgeflock.client.neighbour.allowance import Allowance


class Resting:
    """Rests long enough that this process takes `share` of a core.

    It measures the processor time of all threads, not the duration of steps, which is long on a busy machine.
    It never interrupts a batch. The rest after a long batch is proportional.
    """

    def __init__(
        self,
        share: float | None,
        used: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`used` returns seconds of processor time, `now` seconds. A share of None means no limit."""
        self._used, self._now = used, now
        self._allowance = None if share is None else Allowance(share, now())
        self._before = used()
        self._closed = threading.Event()

    def begin(self) -> None:
        """Reset at the start of training, so that preparation does not count."""
        self._before = self._used()
        if self._allowance is not None:
            self._allowance.begin(self._now())

    def rest(self) -> None:
        """Rest if necessary. Call it before each batch, in the computing thread."""
        if self._allowance is None:
            return
        used = self._used()
        seconds = self._allowance.spend(used - self._before, self._now())
        self._before = used
        if seconds:
            self._closed.wait(seconds)

    def close(self) -> None:
        """End the current rest and all later ones."""
        self._closed.set()
