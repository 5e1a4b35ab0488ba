"""Mini-batches of a source that waits, e.g. a file: it is read at the speed of training, and drops nothing.

It is read in the run's batch size like stored data, but in its own order and once.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from edgeflock.client.data.batcher import Batch, StreamEnded
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.stream_batches import SourceBatches
from edgeflock.client.data.stream_buffer import Truncation


class Backlog(SourceBatches):
    """Batches from a source that waits.

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
    ) -> None:
        """No batch has fewer than `low` samples before the source ends."""
        super().__init__(source, Truncation(math.inf, low, quota_bytes=1 << 62), tally, checks)
        self._low = low
        self._wanted = asyncio.Event()

    async def ready(self, steps: int) -> None:
        """Wait until there are samples for `take`. If there are few, `steps` calls share them.

        Raises StreamEnded if nothing is left, and the source's own errors.
        """
        self._steps, self._last = steps, None
        while len(self._buffer) < self._low:
            if self._has_ended():
                if not len(self._buffer):
                    raise StreamEnded("all samples have been trained on")
                return
            self._arrived.clear()
            self._wanted.set()
            await self._arrived.wait()

    def take(self, size: int) -> Batch:
        """Return (x, y) of up to `size` samples, without unfit ones.

        If none is left, it returns the update's last batch. Raises NoUsableSamples if the update has no batch
        yet. Raises ConfigError if the backend accepts no sample.
        """
        batch: Batch | None = None
        while batch is None and (waiting := len(self._buffer)):
            with self._lock:
                taken = self._take(min(size, math.ceil(waiting / self._steps)), 0.0)
            fit = self._fitting.fit(taken)
            batch = (fit.x, fit.y) if len(fit) else None
        self._steps = max(1, self._steps - 1)
        return self._latest(batch)

    async def _feed(self) -> None:
        async with aclosing(self._source) as chunks:
            await self._wanted.wait()
            async for chunk in chunks:
                with self._lock:
                    self._add(chunk, 0.0)
                if len(self._buffer) >= self._low:
                    self._wanted.clear()
                self._arrived.set()
                await self._wanted.wait()
