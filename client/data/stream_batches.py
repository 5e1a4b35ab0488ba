"""Mini-batches of a stream, whose source yields samples at its own rate; of one that waits: backlog.py.

StreamBatches follow the rate (ScaDLES, section IV). A batch is due once the oldest sample has waited for WAIT
seconds, or the largest batch waits. The smallest batch must wait in any case. The batch is then what arrived
within a second of that oldest sample: b_i = S_i. S_i is a count and not an average, since an average lags
behind a change of the rate. Truncation keeps a second, so nothing is dropped while a device takes its batches
in time. Samples that came before training first asked count as if they came at that moment.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import pairwise
from typing import Self

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, Batches, NoUsableSamples, StreamEnded
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.fitting import Fitting
from edgeflock.client.data.records import Skipped, SourceProgress, StreamChunk
from edgeflock.client.data.stream_buffer import Buffer
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.data.rates import HIGH, LOW, RateEstimator, batch_size
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

WAIT = 0.9
"""Seconds after which a sample is due: 0.1 s before truncation would drop it."""

SECOND = 1.0
"""Samples that arrive within this time make a batch."""

QUIET = 30.0
"""Seconds without a batch after which a device says so."""

_CLOCK_ERROR = 1e-6
"""Pauses up to this count as 0: no clock can wait for less."""


def steady_clock() -> Callable[[], float]:
    """Return a clock that gives the time of day, without later changes of the system clock."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


class SourceBatches(Batches):
    """Batches of the samples that a source puts into a buffer meanwhile. Use as an async context manager.

    `take`, `settle`, `take_back` and `account` may be called in any thread. Each `take_back` or `settle`
    covers all samples taken since the previous one. A worker calls one of them after each push.
    """

    def __init__(
        self,
        source: AsyncGenerator[StreamChunk, None],
        buffer: Buffer,
        tally: Skipped,
        checks: Checks | None,
    ) -> None:
        """`tally` is the source's own. `checks` apply to samples read back."""
        self._source, self._buffer = source, buffer
        self._fitting = Fitting(buffer, tally, checks or Checks())
        tally.progress = self._progress
        self._lock = threading.Lock()
        """Guards the buffer and the account: training takes samples in its own thread."""
        self._arrived = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._steps = 1
        self._last: Batch | None = None
        self._unrecorded = 0
        """Samples of the last batch, or 0 if that batch is a repetition."""

    async def __aenter__(self) -> Self:
        self._feeding = asyncio.create_task(self._feed())
        self._feeding.add_done_callback(lambda _: self._arrived.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._feeding is not None
        self._feeding.cancel()
        await asyncio.wait([self._feeding])
        if not self._feeding.cancelled():
            self._feeding.exception()  # `ready` raises it
        with self._lock:
            self._buffer.close()

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        self._fitting.begin(welcome, backend)

    def record_result(self, loss: float, right: float | None) -> None:
        """Record the loss and accuracy on the last batch, unless that batch is a repetition."""
        with self._lock:
            if self._unrecorded:
                self._fitting.prequential.record_result(loss, right, self._unrecorded)

    def settle(self) -> None:
        with self._lock:
            self._buffer.settle()
            self._fitting.settle()

    def take_back(self) -> None:
        with self._lock:
            self._buffer.take_back()
            self._fitting.take_back()

    def telemetry(self) -> Facts:
        """Return the state of the buffer and the account of its samples."""
        with self._lock:
            return {"depth": len(self._buffer), **self._fitting.facts()}

    def account(self) -> SampleAccount:
        """Return the account of every sample until now."""
        with self._lock:
            return self._fitting.account()

    async def _feed(self) -> None:
        """Put the source's samples into the buffer until it ends."""
        raise NotImplementedError

    def _has_ended(self) -> bool:
        """Return whether the source has ended. Raises its own errors."""
        assert self._feeding is not None, "use it as an async context manager"
        if self._feeding.done():
            self._feeding.result()
        return self._feeding.done()

    def _take(self, count: int, now: float) -> Batch:
        """Take up to `count` samples from the buffer, which is locked."""
        batch = self._buffer.take(count, now)
        self._fitting.unsettled += len(batch[1])
        return batch

    def _add(self, chunk: StreamChunk, now: float) -> None:
        """Add samples to the buffer, which is locked."""
        self._buffer.add(chunk, now)
        self._fitting.received += len(chunk)

    def _latest(self, batch: Batch | None) -> Batch:
        """Return the batch, or else the update's last one. Raises NoUsableSamples if it has none yet."""
        self._unrecorded = 0 if batch is None else len(batch[1])
        self._last = self._last if batch is None else batch
        if self._last is None:
            raise NoUsableSamples("all samples that waited were set aside")
        return self._last

    def _progress(self) -> SourceProgress:
        with self._lock:
            return self._fitting.progress()


class StreamBatches(SourceBatches):
    """Batches from a stream. The source fills the buffer at its own rate.

    A source faster than training causes drops, not more memory.
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
    ) -> None:
        """Batches have `low` to `high` samples. `now` returns seconds, in any thread."""
        super().__init__(source, buffer, tally, checks)
        self._low = low
        self._high = high
        self._now = now or steady_clock()
        self._open_time = 0.0
        self._start_delay: float | None = None
        """Seconds from `_open_time` until training first asked; None before."""
        self._wait_began: float | None = None
        """When `ready` began to wait, while it does."""
        self._patience = QUIET
        """How long `ready` waits until it logs that it does."""
        self._rate = RateEstimator()
        self._parts: list[Batch] = []
        """The remaining parts of the current batch, in reverse order."""

    async def __aenter__(self) -> Self:
        self._open_time = self._now()
        return await super().__aenter__()

    async def ready(self, steps: int = 1) -> None:
        """Wait until a batch is due, which the next `steps` calls of `take` share, or the stream ends.

        Raises StreamEnded if nothing is left, and the source's own errors.
        """
        self._steps, self._parts, self._last = steps, [], None
        self._wait_began = self._now()
        self._patience = QUIET
        if self._start_delay is None:
            self._start_delay = self._wait_began - self._open_time
        while not await self._is_due():
            pass
        self._wait_began = None

    async def _is_due(self) -> bool:
        """Return whether a batch is due. If not, it first waits for a change."""
        ended = self._has_ended()
        with self._lock:
            pause, waiting = self._pause(), len(self._buffer)
        if not pause or (ended and waiting):
            return True
        if ended:
            raise StreamEnded("the stream has ended")
        self._arrived.clear()
        try:
            async with asyncio.timeout(min(pause, self._patience)):
                await self._arrived.wait()
        except TimeoutError:
            self._log_wait(waiting)
        return False

    def _log_wait(self, waiting: int) -> None:
        """Log that no batch comes together: after 30 s of a wait, and then at growing intervals."""
        waited = self._now() - (self._wait_began or 0.0)
        if waited >= self._patience:
            self._patience *= 4
            log.warning(
                "no batch for %.0f s: %d of %d samples (client.batch_min) have come; does anything send to "
                "client.data?",
                *(waited, waiting, self._low),
            )

    def take(self, size: int) -> Batch:
        """Return (x, y) of a share of the batch that arrived within a second, without unfit samples.

        The steps of `ready` share the batch evenly, and the bounds limit it. The run's `size` is ignored. If
        nothing is left, it returns the update's last batch.

        Raises NoUsableSamples if the update has no batch yet. Raises ConfigError if the backend accepts no
        sample.
        """
        while not self._parts:
            with self._lock:
                if not len(self._buffer):
                    break
                wanted = batch_size(self._buffer.count_within(SECOND), self._low, self._high * self._steps)
                batch = self._take(wanted, self._time())
            self._split(self._fitting.fit(batch))
        return self._latest(self._parts.pop() if self._parts else None)

    def telemetry(self) -> Facts:
        """Return the state of the stream and the account of its samples."""
        with self._lock:
            now = self._now()
            return {
                "rate": self._rate.rate(now),
                "depth": len(self._buffer),
                "age": self._buffer.age(self._time()),
                "waiting": 0.0 if self._wait_began is None else max(0.0, now - self._wait_began),
                **self._fitting.facts(),
            }

    def _time(self) -> float:
        """Return the buffer's time, which stands still until training first asks.

        So no sample expires while a device starts.
        """
        return self._open_time if self._start_delay is None else self._now() - self._start_delay

    def _pause(self) -> float:
        """Return the seconds until a batch is due if no sample arrives: from 0 up to infinity."""
        waiting = len(self._buffer)
        if waiting >= self._high * self._steps:
            return 0.0
        if waiting < self._low:
            return math.inf
        pause = WAIT - self._buffer.age(self._time())
        return pause if pause > _CLOCK_ERROR else 0.0

    def _split(self, chunk: StreamChunk) -> None:
        """Share `chunk` evenly among the next steps."""
        starts = np.linspace(0, len(chunk), min(self._steps, len(chunk)) + 1).round().astype(int)
        shares: list[Batch] = [(chunk.x[i:j], chunk.y[i:j]) for i, j in pairwise(starts)]
        self._parts = shares[::-1]
        if shares:
            self._steps = 1  # further calls of `take` get the rest of the buffer

    async def _feed(self) -> None:
        async with aclosing(self._source) as chunks:
            async for chunk in chunks:
                with self._lock:
                    self._rate.add(len(chunk), self._now())
                    self._add(chunk, self._time())
                self._arrived.set()
                await asyncio.sleep(0)  # lets other tasks run if the source never waits
