"""A stream in virtual time: the client's own buffers, rate estimate and batch rule, at a given rate.

The buffer holds indices of samples, and a step looks up the samples that it takes. A buffer of millions of
samples, as stream persistence produces, therefore takes a few bytes for each sample.
"""

import asyncio
import math
from dataclasses import dataclass

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data.batcher import Batch
from edgeflock.client.data.checks import Checks
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources.synthetic import Passes, replay
from edgeflock.client.data.stream_batches import StreamBatches
from edgeflock.client.data.stream_buffer import Truncation
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.data.rates import RateCurve
from edgeflock.shared.protocol.messages import Welcome


@dataclass(slots=True)
class StreamTally:
    """Totals of a device's stream."""

    rate: float
    """Samples per second: the average over a period of its curve, or over the first hour at most."""
    samples: int = 0
    """Samples that were taken. Those of refused updates count again."""
    came: int = 0
    drops: int = 0
    depth: int = 0
    """Samples that waited when the last step began."""
    deepest: int = 0
    """The largest depth of all steps."""
    gap: float = 0.0
    """The longest time between two batches, in seconds. The first counts from the begin of the stream."""


class EmulatedStream(StreamBatches):
    """The batches of a device with a stream. Use it as an async context manager in a virtual event loop."""

    def __init__(
        self,
        data: Dataset,
        rate: RateCurve,
        random: np.random.Generator,
        low: int,
        high: int,
        *,
        everything: bool,
    ) -> None:
        """`data` repeat without end at `rate`, shuffled anew in each pass.

        The buffer keeps the last second, or `everything` (stream persistence).
        """
        self._data = data
        numbers = StreamChunk(np.arange(len(data), dtype=np.float32), np.arange(len(data)))
        seconds, quota = (math.inf, 1 << 62) if everything else (1.0, 1 << 26)
        super().__init__(
            replay(numbers, rate, Passes(len(data), random, once=False)),
            Truncation(seconds, low, quota),
            Skipped(),
            low,
            high,
            now=lambda: asyncio.get_running_loop().time(),
            checks=Checks(limit=math.inf),  # x are indices of samples
        )
        span = min(rate.period, 3600.0)
        self.tally = StreamTally(rate.arrivals(span) / span)
        self._batch_time = 0.0
        """The virtual time of the last batch."""

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Do nothing: the stream repeats stored data, which the backend accepts."""

    async def ready(self, steps: int = 1) -> None:
        await super().ready(steps)
        account = self.account()
        self.tally.depth, self.tally.drops, self.tally.came = account.left, account.drops, account.came
        self.tally.deepest = max(self.tally.deepest, account.left)

    def take(self, size: int) -> Batch:
        now = asyncio.get_running_loop().time()
        self.tally.gap, self._batch_time = max(self.tally.gap, now - self._batch_time), now
        _, numbers = super().take(size)
        where = numbers.astype(np.int64)
        self.tally.samples += where.size
        return self._data.x[where], self._data.y[where]
