"""A stream -> mini-batches of what arrived within a second (ScaDLES, section IV).

A batch is due once the oldest sample has waited for WAIT seconds, or the largest batch waits, and never
before the least waits. It is then as large as what arrived within a second of that oldest sample: b_i = S_i,
of what the stream brought rather than of an average, which knows nothing of a rate that has just fallen or
risen. Truncation keeps a second, so that nothing is dropped while a device takes its batches in time. What
came before training first asked counts as if it came then, at once.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from itertools import pairwise
from typing import Self

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, NothingFit, StreamOver
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.fitting import Fitting
from edgeflock.client.data.records import Skipped, SourceProgress, StreamChunk
from edgeflock.client.data.scaling import Scaling
from edgeflock.client.data.stream_buffer import Buffer
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.data.rates import HIGH, LOW, RateEstimator, batch_size
from edgeflock.shared.protocol.messages import Facts, Welcome


def steady_clock() -> Callable[[], float]:
    """The time of day, but for whoever sets the clock meanwhile."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


WAIT = 0.9
"""Seconds after which a sample is due: a tenth before truncation would drop it."""

SECOND = 1.0
"""What arrived within this time is a batch."""

_CLOSE = 1e-6
"""Seconds that count as none: no clock can wait for less."""


class StreamBatches:
    """What a worker trains on if its data are a stream. Use as an async context manager.

    The source fills the buffer at its own pace, whatever training does: one that is faster costs drops rather
    than memory. `take`, `settle`, `take_back` and `account` may be called in any thread.

    Each `take_back` or `settle` stands for everything taken since the one before; a worker calls one of them
    after each push.
    """

    def __init__(
        self,
        source: AsyncGenerator[StreamChunk, None],
        buffer: Buffer,
        tally: Skipped,
        low: int = LOW,
        high: int = HIGH,
        now: Callable[[], float] | None = None,
        checks: Checks | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        """`tally` is the one the source counts in. `now` gives seconds, at any time and in any thread.
        `checks` are those of what is read back. Without `scaling` inputs keep their units.
        """
        self._source = source
        self._buffer = buffer
        self._low = low
        self._high = high
        self._now = now or steady_clock()
        self._opened = 0.0
        self._stood: float | None = None
        """Seconds from then until training first asked, once it has."""
        self._fitting = Fitting(buffer, tally, checks or Checks(), scaling)
        tally.progress = self._progress
        self._since: float | None = None
        """When `ready` began to wait, while it does."""
        self._rate = RateEstimator()
        self._lock = threading.Lock()
        """Around buffer and rate: training takes in its own thread."""
        self._arrived = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._steps = 1
        self._shares: list[Batch] = []
        """What is left of the batch that `ready` waited for, the next one last."""
        self._last: Batch | None = None
        self._unjudged = 0
        """Samples of the batch that was taken last, if it is the first time."""

    async def __aenter__(self) -> Self:
        self._opened = self._now()
        self._feeding = asyncio.create_task(self._feed())
        self._feeding.add_done_callback(lambda _: self._arrived.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._feeding is not None
        self._feeding.cancel()
        await asyncio.wait([self._feeding])
        if not self._feeding.cancelled():
            self._feeding.exception()  # `ready` told of it
        with self._lock:
            self._buffer.close()

    async def ready(self, steps: int = 1) -> None:
        """Return once there is a batch for the next `steps` calls of `take`, which share it, or at the end of
        the stream whatever is left.

        Raises StreamOver if nothing is left, and what the source raised.
        """
        assert self._feeding is not None, "use StreamBatches as an async context manager"
        self._steps, self._shares, self._last = steps, [], None
        self._since = self._now()
        if self._stood is None:
            self._stood = self._since - self._opened
        while not await self._is_due():
            pass
        self._since = None

    async def _is_due(self) -> bool:
        """Whether there is a batch; if not, something has changed since."""
        assert self._feeding is not None, "use StreamBatches as an async context manager"
        over = self._feeding.done()
        if over:
            self._feeding.result()
        with self._lock:
            pause, waiting = self._pause(), len(self._buffer)
        if not pause or (over and waiting):
            return True
        if over:
            raise StreamOver("the stream has ended")
        self._arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause if pause < math.inf else None):
                await self._arrived.wait()
        return False

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        self._fitting.begin(welcome, backend)

    def take(self, size: int) -> Batch:
        """(x, y) of what arrived within a second of the oldest sample, within the bounds, shared evenly by
        the steps that `ready` was asked for; without those samples that are unfit after all. The run's `size`
        is for stored data. If nothing is left, the last batch of the update again.

        Raises NothingFit if the update has none yet, and ConfigError if the backend takes no sample at all.
        """
        while not self._shares:
            with self._lock:
                if not len(self._buffer):
                    break
                wanted = batch_size(self._buffer.within(SECOND), self._low, self._high * self._steps)
                batch = self._buffer.take(wanted, self._time())
                self._fitting.taken += len(batch[1])
            self._split(self._fitting.fit(batch))
        self._unjudged = 0
        if self._shares:
            self._last = self._shares.pop()
            self._unjudged = len(self._last[1])
        if self._last is None:
            raise NothingFit("all samples that waited were set aside")
        return self._last

    def judged(self, loss: float, right: float | None) -> None:
        """What the model made of the batch that was taken last, if that was not for the second time."""
        with self._lock:
            if self._unjudged:
                self._fitting.prequential.judged(loss, right, self._unjudged)

    def settle(self) -> None:
        """The server has what was computed from the batches taken."""
        with self._lock:
            self._buffer.settle()
            self._fitting.settle()

    def take_back(self) -> None:
        """It has not, and will not: the samples come again."""
        with self._lock:
            self._buffer.take_back()
            self._fitting.take_back()

    def telemetry(self) -> Facts:
        """How the stream does, and what became of its samples so far."""
        with self._lock:
            now = self._now()
            return {
                "rate": self._rate.rate(now),
                "depth": len(self._buffer),
                "age": self._buffer.age(self._time()),
                "waiting": 0.0 if self._since is None else max(0.0, now - self._since),
                **self._fitting.facts(),
            }

    def account(self) -> SampleAccount:
        """What became of every sample until now."""
        with self._lock:
            return self._fitting.account()

    def _progress(self) -> SourceProgress:
        with self._lock:
            return self._fitting.progress()

    def _time(self) -> float:
        """The buffer's. It stands still until training asks for the first time: a device that starts is slow,
        and nothing is too old before anybody could have taken it.
        """
        return self._opened if self._stood is None else self._now() - self._stood

    def _pause(self) -> float:
        """Seconds until there is a batch if nothing more arrives: 0 if there is one, infinity without end."""
        waiting = len(self._buffer)
        if waiting >= self._high * self._steps:
            return 0.0
        if waiting < self._low:
            return math.inf
        pause = WAIT - self._buffer.age(self._time())
        return pause if pause > _CLOSE else 0.0

    def _split(self, chunk: StreamChunk) -> None:
        """Share `chunk` evenly by the steps to come."""
        starts = np.linspace(0, len(chunk), min(self._steps, len(chunk)) + 1).round().astype(int)
        shares: list[Batch] = [(chunk.x[i:j], chunk.y[i:j]) for i, j in pairwise(starts)]
        self._shares = shares[::-1]
        if shares:
            self._steps = 1  # whoever takes more often than they said gets what is left

    async def _feed(self) -> None:
        async with aclosing(self._source) as chunks:
            async for chunk in chunks:
                with self._lock:
                    self._rate.arrived(len(chunk), self._now())
                    self._buffer.add(chunk, self._time())
                    self._fitting.came += len(chunk)
                self._arrived.set()
                await asyncio.sleep(0)  # a source with a backlog need not wait itself
