"""A stream -> mini-batches whose size follows its rate (ScaDLES, section IV)."""

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Self

from edgeflock.client.data.batcher import Batch, StreamOver
from edgeflock.client.data.records import Chunk, Skipped
from edgeflock.client.data.stream_buffer import Buffer
from edgeflock.shared.data.rates import HIGH, LOW, RateEstimator, batch_size
from edgeflock.shared.protocol.messages import Facts


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """How a device's stream does."""

    depth: int
    """Samples that wait."""
    drops: int
    """Samples dropped by the buffer so far."""
    age: float
    """Seconds since the oldest that waits arrived."""
    rate: float
    """Samples per second."""
    broken: int
    """Records skipped so far."""


def steady_clock() -> Callable[[], float]:
    """The time of day, but for whoever sets the clock meanwhile."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


_NEARLY = 0.9
"""The part of a batch that is enough: a buffer of one second may hold a little less than the rate says."""


class StreamBatches:
    """What a worker trains on if its data are a stream. Use as an async context manager.

    The source fills the buffer at its own pace, whatever training does: one that is faster costs drops rather
    than memory. `take`, `settle`, `take_back` and `facts` may be called in any thread.

    Each `take_back` or `settle` stands for everything taken since the one before; a worker calls one of them
    after each push.
    """

    def __init__(
        self,
        source: AsyncGenerator[Chunk, None],
        buffer: Buffer,
        tally: Skipped,
        low: int = LOW,
        high: int = HIGH,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`tally` is the one the source counts in. `now` gives seconds, at any time and in any thread."""
        self._source = source
        self._buffer = buffer
        self._tally = tally
        self._low = low
        self._high = high
        self._now = now or steady_clock()
        self._rate = RateEstimator()
        self._lock = threading.Lock()
        """Around buffer and rate: training takes in its own thread."""
        self._arrived = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._steps = 1
        self._last: Batch | None = None

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
        with self._lock:
            self._buffer.close()

    async def ready(self, steps: int = 1) -> None:
        """Return once there are samples for the next call of `take`: nearly a batch as the rate has it, or at
        the end of the stream whatever is left. `steps` calls will share it.

        Raises StreamOver if nothing is left, and what the source raised.
        """
        assert self._feeding is not None, "use StreamBatches as an async context manager"
        self._steps = steps
        while True:
            over = self._feeding.done()
            if over:
                self._feeding.result()
            waiting, enough = self._waiting()
            if waiting >= enough or (over and waiting):
                return
            if over:
                raise StreamOver("the stream has ended")
            self._arrived.clear()
            await self._arrived.wait()

    def take(self, size: int) -> Batch:
        """(x, y) of round(rate) samples within the bounds, or fewer: what there is, shared evenly among the
        steps that `ready` was asked for. The run's `size` is for stored data. If nothing is left, the last
        batch again.
        """
        with self._lock:
            waiting = len(self._buffer)
            if waiting:
                now = self._now()
                wanted = batch_size(self._rate.rate(now), self._low, self._high)
                share = math.ceil(waiting / self._steps)
                self._steps = max(1, self._steps - 1)
                self._last = self._buffer.take(min(wanted, share), now)
        assert self._last is not None, "wait for ready first"
        return self._last

    def settle(self) -> None:
        """The server has what was computed from the batches taken."""
        with self._lock:
            self._buffer.settle()

    def take_back(self) -> None:
        """It has not, and will not: the samples come again."""
        with self._lock:
            self._buffer.take_back()

    def telemetry(self) -> Facts:
        return asdict(self.facts())

    def facts(self) -> StreamFacts:
        with self._lock:
            now = self._now()
            return StreamFacts(
                depth=len(self._buffer),
                drops=self._buffer.drops,
                age=self._buffer.age(now),
                rate=self._rate.rate(now),
                broken=self._tally.total,
            )

    def _waiting(self) -> tuple[int, float]:
        """(samples that wait, how many are enough)."""
        with self._lock:
            wanted = batch_size(self._rate.rate(self._now()), self._low, self._high)
            return len(self._buffer), max(self._low, _NEARLY * wanted)

    async def _feed(self) -> None:
        async with aclosing(self._source) as chunks:
            async for chunk in chunks:
                with self._lock:
                    now = self._now()
                    self._rate.arrived(len(chunk), now)
                    self._buffer.add(chunk, now)
                self._arrived.set()
                await asyncio.sleep(0)  # a source with a backlog need not wait itself
