"""Batches from a source that can wait for training, e.g. files.

A stream drops the samples that training is too slow for. A file drops none: it is read at the speed of
training. It is read in the run's batch size like stored data, but in its own order and once.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, NoUsableSamples, StreamEnded
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.fitting import Fitting
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.scaling import Scaling
from edgeflock.client.data.stream_buffer import Truncation
from edgeflock.shared.protocol.messages import Facts, Welcome


class Backlog:
    """Batches from a source that waits. Use as an async context manager.

    It asks the source for more only when fewer samples than the smallest batch are left unused. The server
    then has the updates of all others. So nothing is dropped, and a source may record its progress when it is
    asked again. Memory holds one chunk of the source and a little more.
    """

    def __init__(
        self,
        source: AsyncGenerator[StreamChunk, None],
        tally: Skipped,
        low: int,
        checks: Checks | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        """No batch has fewer than `low` samples before the source ends.

        The source counts in `tally`. `checks` apply to samples read back. Without `scaling` inputs keep
        their units.
        """
        self._source = source
        self._low = low
        self._buffer = Truncation(math.inf, low, quota_bytes=1 << 62)
        self._fitting = Fitting(self._buffer, tally, checks or Checks(), scaling)
        tally.progress = self._fitting.progress
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._last: Batch | None = None
        self._unrecorded = 0
        """Samples of the last batch, or 0 if that batch is a repetition."""
        self._steps = 1

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

    async def ready(self, steps: int) -> None:
        """Wait until there are samples for `take`. If there are few, `steps` calls share them.

        Raises StreamEnded if nothing is left, and the source's own errors.
        """
        assert self._feeding is not None, "use Backlog as an async context manager"
        self._steps, self._last = steps, None
        while len(self._buffer) < self._low:
            if self._feeding.done():
                self._feeding.result()
                if not len(self._buffer):
                    raise StreamEnded("all samples have been trained on")
                return
            self._arrived.clear()
            self._wanted.set()
            await self._arrived.wait()

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        self._fitting.begin(welcome, backend)

    def take(self, size: int) -> Batch:
        """Return (x, y) of up to `size` samples, without unfit ones.

        If none is left, it returns the update's last batch. Raises NoUsableSamples if the update has no batch
        yet. Raises ConfigError if the backend accepts no sample.
        """
        self._unrecorded = 0
        while waiting := len(self._buffer):
            share = math.ceil(waiting / self._steps)
            batch = self._buffer.take(min(size, share), 0.0)
            self._fitting.unsettled += len(batch[1])
            fit = self._fitting.fit(batch)
            if len(fit):
                self._last = fit.x, fit.y
                self._unrecorded = len(fit)
                break
        self._steps = max(1, self._steps - 1)
        if self._last is None:
            raise NoUsableSamples("all samples that waited were set aside")
        return self._last

    def record_result(self, loss: float, right: float | None) -> None:
        """Record the loss and accuracy on the last batch, unless that batch is a repetition."""
        if self._unrecorded:
            self._fitting.prequential.record_result(loss, right, self._unrecorded)

    def settle(self) -> None:
        """Mark the taken samples as used: the server has their update."""
        self._buffer.settle()
        self._fitting.settle()

    def take_back(self) -> None:
        """Return the taken samples: the server will not get their update."""
        self._buffer.take_back()
        self._fitting.take_back()

    def telemetry(self) -> Facts:
        return {"depth": len(self._buffer), **self._fitting.facts()}

    async def _feed(self) -> None:
        async with aclosing(self._source) as chunks:
            await self._wanted.wait()
            async for chunk in chunks:
                self._buffer.add(chunk, 0.0)
                self._fitting.received += len(chunk)
                if len(self._buffer) >= self._low:
                    self._wanted.clear()
                self._arrived.set()
                await self._wanted.wait()
