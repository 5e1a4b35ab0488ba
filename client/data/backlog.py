"""Samples of which those that are not yet trained on are there tomorrow: files, or whatever can be held back.

A stream drops what training cannot follow. Of a file nothing need be dropped: it is read as fast as training
goes, in the run's own batches, like stored data, but in its order and once.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Self

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch, NothingFit, StreamOver
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.fitting import Fitting
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.scaling import Scaling
from edgeflock.client.data.stream_buffer import Truncation
from edgeflock.shared.protocol.messages import Facts, Welcome


class Backlog:
    """What a worker trains on. Use as an async context manager.

    The source is asked for more only once the server has what was computed from what it gave, but for fewer
    samples than the fewest of a batch: nothing is dropped, and what a source notes when it is asked again is
    so. Memory is one chunk of the source, and a little more.
    """

    def __init__(
        self,
        source: AsyncGenerator[StreamChunk, None],
        tally: Skipped,
        low: int,
        checks: Checks | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        """No batch has fewer than `low` samples before the source is over. It counts in `tally`. `checks` are
        those of what is read back. Without `scaling` inputs keep their units.
        """
        self._source = source
        self._low = low
        self._held = Truncation(math.inf, low, quota_bytes=1 << 62)
        self._fitting = Fitting(self._held, tally, checks or Checks(), scaling)
        tally.progress = self._fitting.progress
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._last: Batch | None = None
        self._unjudged = 0
        """Samples of the batch that was taken last, if it is the first time."""
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
            self._feeding.exception()  # `ready` told of it

    async def ready(self, steps: int) -> None:
        """Return once there are samples for `take`. `steps` calls share what is there, if that is little.

        Raises StreamOver if nothing is left, and what the source raised.
        """
        assert self._feeding is not None, "use Backlog as an async context manager"
        self._steps, self._last = steps, None
        while len(self._held) < self._low:
            if self._feeding.done():
                self._feeding.result()
                if not len(self._held):
                    raise StreamOver("all there was has been trained on")
                return
            self._arrived.clear()
            self._wanted.set()
            await self._arrived.wait()

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        self._fitting.begin(welcome, backend)

    def take(self, size: int) -> Batch:
        """(x, y) of the next `size` samples, or of what there is, without those that are unfit after all; the
        last batch of the update again if nothing is left.

        Raises NothingFit if the update has none yet, and ConfigError if the backend takes no sample at all.
        """
        self._unjudged = 0
        while waiting := len(self._held):
            share = math.ceil(waiting / self._steps)
            batch = self._held.take(min(size, share), 0.0)
            self._fitting.taken += len(batch[1])
            fit = self._fitting.fit(batch)
            if len(fit):
                self._last = fit.x, fit.y
                self._unjudged = len(fit)
                break
        self._steps = max(1, self._steps - 1)
        if self._last is None:
            raise NothingFit("all samples that waited were set aside")
        return self._last

    def judged(self, loss: float, right: float | None) -> None:
        """What the model made of the batch that was taken last, if that was not for the second time."""
        if self._unjudged:
            self._fitting.prequential.judged(loss, right, self._unjudged)

    def settle(self) -> None:
        """The server has what was computed from the batches taken."""
        self._held.settle()
        self._fitting.settle()

    def take_back(self) -> None:
        """It has not, and will not: the samples come again."""
        self._held.take_back()
        self._fitting.take_back()

    def telemetry(self) -> Facts:
        return {"depth": len(self._held), **self._fitting.facts()}

    async def _feed(self) -> None:
        async with aclosing(self._source) as chunks:
            await self._wanted.wait()
            async for chunk in chunks:
                self._held.add(chunk, 0.0)
                self._fitting.came += len(chunk)
                if len(self._held) >= self._low:
                    self._wanted.clear()
                self._arrived.set()
                await self._wanted.wait()
