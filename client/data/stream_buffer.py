"""Buffers between a stream and training, oldest sample first, in bounded space (ScaDLES, section IV).

    Truncation     keeps the last second, in memory: O(S) samples of a stream of rate S
    Persistence    keeps all on disk, up to a quota; drops the oldest when full (stream_disk.py)

Taken samples are kept until `settle` marks them as used. `take_back` returns them to the front, e.g. if a
round closed without this device.

Time is an argument, in seconds from any fixed moment. Not thread-safe.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

import numpy as np

from edgeflock.client.data.batcher import Batch
from edgeflock.client.data.records import StreamChunk

KEYS = 100_000
"""Number of latest keys that a buffer remembers, since a broker may repeat recent messages."""


class Buffer(Protocol):
    is_durable: bool
    """Whether added samples outlast the process."""
    drops: int
    """Samples dropped so far without use,"""
    unwritten: int
    """those of them that a full disk did not store, and"""
    duplicates: int
    """samples not added, since their keys had come before."""

    def __len__(self) -> int:
        """The number of waiting samples."""

    def add(self, chunk: StreamChunk, now: float) -> None: ...

    def take(self, count: int, now: float) -> Batch:
        """Take the oldest `count` samples, or fewer, of one shape. At least one must wait."""

    def settle(self) -> None:
        """Mark the taken samples as used."""

    def take_back(self) -> None:
        """Return the samples taken since the last `settle` to the front."""

    def age(self, now: float) -> float:
        """Return the seconds since the oldest sample arrived, or 0 if none waits.

        If the clock was set back, it is the absolute difference.
        """

    def count_within(self, seconds: float) -> int:
        """Return how many waiting samples arrived less than `seconds` after the oldest of them."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Arrival:
    chunk: StreamChunk
    arrived: float


class Truncation:
    """Keeps the samples of the last `seconds`, and the newest `minimum` at any age.

    So a slow stream also makes batches. The first `minimum` samples count as if all arrived with the last of
    them, so a burst after them drops none. The same rules apply to samples taken back.
    """

    is_durable = False

    def __init__(self, seconds: float = 1.0, minimum: int = 8, quota_bytes: int = 1 << 26) -> None:
        """The samples take at most `quota_bytes` of memory at any rate."""
        self._seconds = seconds
        self._low = minimum
        self._quota = quota_bytes
        self._chunks: deque[_Arrival] = deque()
        self._in_training: list[_Arrival] = []
        self._count = 0
        self._octets = 0
        self._refill = -math.inf
        """When the buffer last reached `minimum` samples."""
        self._keys: OrderedDict[str, None] = OrderedDict()
        self.drops = self.unwritten = 0
        self.duplicates = 0

    def __len__(self) -> int:
        return self._count

    def add(self, chunk: StreamChunk, now: float) -> None:
        chunk, repeated = drop_repeated(chunk, self._is_new)
        self.duplicates += repeated
        if not len(chunk):
            return
        if self._count < self._low <= self._count + len(chunk):
            self._refill = now
        fitting = max(1, self._quota // max(1, octets(chunk) // max(1, len(chunk))))
        if len(chunk) > fitting:  # copied, to free the memory of the rest
            self.drops += len(chunk) - fitting
            chunk = StreamChunk(chunk.x[-fitting:].copy(), chunk.y[-fitting:].copy())
        self._put(_Arrival(chunk, now))
        while self._octets > self._quota:
            self.drops += len(self._take_oldest(len(self._chunks[0].chunk)).chunk)
        self._truncate(now)

    def take(self, count: int, now: float) -> Batch:
        self._truncate(now)
        taken: list[_Arrival] = []
        while count > 0 and self._chunks and (not taken or batchable(taken[0].chunk, self._chunks[0].chunk)):
            taken.append(self._take_oldest(count))
            count -= len(taken[-1].chunk)
        self._in_training += taken
        return concatenate([held.chunk for held in taken])

    def settle(self) -> None:
        self._in_training.clear()

    def take_back(self) -> None:
        waiting, self._chunks = self._chunks, deque()
        self._count = self._octets = 0
        for held in (*self._in_training, *waiting):
            self._put(held)
        self._in_training.clear()

    def age(self, now: float) -> float:
        return abs(now - self._chunks[0].arrived) if self._chunks else 0.0

    def count_within(self, seconds: float) -> int:
        if not self._chunks:
            return 0
        until = self._chunks[0].arrived + seconds
        return sum(len(held.chunk) for held in takewhile(lambda held: held.arrived < until, self._chunks))

    def close(self) -> None:
        pass

    def _is_new(self, key: str) -> bool:
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > KEYS:
            self._keys.popitem(last=False)
        return True

    def _truncate(self, now: float) -> None:
        while self._count > self._low and now - max(self._chunks[0].arrived, self._refill) > self._seconds:
            self.drops += len(self._take_oldest(self._count - self._low).chunk)

    def _put(self, held: _Arrival) -> None:
        self._chunks.append(held)
        self._count += len(held.chunk)
        self._octets += octets(held.chunk)

    def _take_oldest(self, count: int) -> _Arrival:
        """Remove and return the oldest chunk, or its first `count` samples."""
        held = self._chunks.popleft()
        if len(held.chunk) > count:
            self._chunks.appendleft(_Arrival(slice_chunk(held.chunk, count, len(held.chunk)), held.arrived))
            held = _Arrival(slice_chunk(held.chunk, 0, count), held.arrived)
        self._count -= len(held.chunk)
        self._octets -= octets(held.chunk)
        return held


def drop_repeated(chunk: StreamChunk, is_new: Callable[[str], bool]) -> tuple[StreamChunk, int]:
    """Return (the samples of `chunk` with a new key or none, the number of others)."""
    if not any(key is not None for key in chunk.keys):
        return chunk, 0
    flags = np.array([key is None or is_new(key) for key in chunk.keys])
    return (chunk, 0) if flags.all() else (chunk.select(flags), int((~flags).sum()))


def octets(chunk: StreamChunk) -> int:
    octets: int = chunk.x.nbytes + chunk.y.nbytes
    return octets


def batchable(one: StreamChunk, other: StreamChunk) -> bool:
    """Return whether two chunks fit one batch: the first samples may have another shape."""
    return all(a.shape[1:] == b.shape[1:] for a, b in ((one.x, other.x), (one.y, other.y)))


def slice_chunk(chunk: StreamChunk, first: int, last: int) -> StreamChunk:
    return StreamChunk(chunk.x[first:last], chunk.y[first:last])


def concatenate(chunks: list[StreamChunk]) -> Batch:
    return np.concatenate([chunk.x for chunk in chunks]), np.concatenate([chunk.y for chunk in chunks])
