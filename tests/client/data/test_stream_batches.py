"""Batches of a stream: as large as its rate, and no waiting but for its own samples."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from edgeflock.client.data.batcher import StreamOver
from edgeflock.client.data.records import Chunk, Skipped
from edgeflock.client.data.stream_batches import StreamBatches
from edgeflock.client.data.stream_buffer import Buffer, Truncation
from edgeflock.client.data.stream_disk import Persistence
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.errors import ConfigError

T = TypeVar("T")

RUN_BATCH = 10


def chunk(first: int, count: int) -> Chunk:
    i = np.arange(first, first + count)
    return Chunk(i[:, np.newaxis].astype(np.float32), i)


async def steady(rate: int, seconds: float = 1e9, every: float = 0.25) -> AsyncGenerator[Chunk, None]:
    """`rate` samples per second, as numbers."""
    clock = asyncio.get_running_loop().time
    sent = 0
    while clock() < seconds:
        due = int(clock() * rate)
        if due > sent:
            yield chunk(sent, due - sent)
            sent = due
        await asyncio.sleep(every)


async def listed(*counts: int) -> AsyncGenerator[Chunk, None]:
    first = 0
    for count in counts:
        yield chunk(first, count)
        first += count


def streaming(
    source: Callable[[], AsyncGenerator[Chunk, None]],
    use: Callable[[StreamBatches], Awaitable[T]],
    buffer: Buffer | None = None,
    tally: Skipped | None = None,
) -> T:
    """What `use` comes to in virtual time."""

    async def main() -> T:
        clock = asyncio.get_running_loop().time
        held = Truncation(seconds=1e9) if buffer is None else buffer
        async with StreamBatches(source(), held, tally or Skipped(), now=clock) as batches:
            return await use(batches)

    return run_virtually(main())


@pytest.mark.parametrize(("rate", "size"), [(3, 8), (38, 38), (300, 300), (2000, 1024)])
def test_a_batch_is_what_a_second_brings(rate: int, size: int) -> None:
    async def use(batches: StreamBatches) -> int:
        await asyncio.sleep(60)
        await batches.ready()
        _, y = batches.take(RUN_BATCH)
        assert batches.facts().rate == pytest.approx(rate, rel=0.1)
        return len(y)

    assert streaming(lambda: steady(rate), use) == pytest.approx(size, rel=0.1)


@pytest.mark.parametrize("buffer", ["truncation", "persistence"])
def test_a_slow_stream_waits_for_its_least_batch_and_no_longer(buffer: str, tmp_path: Path) -> None:
    async def use(batches: StreamBatches) -> list[float]:
        moments = []
        for _ in range(3):
            await batches.ready()
            assert len(batches.take(RUN_BATCH)[1]) == 8
            batches.settle()
            moments.append(asyncio.get_running_loop().time())
        return moments

    held = Truncation() if buffer == "truncation" else Persistence(tmp_path / "stream.db", 1 << 20)
    assert streaming(lambda: steady(2), use, held) == pytest.approx([4, 8, 12], abs=0.3)


def test_samples_are_taken_in_order_and_come_again_if_they_were_not_used() -> None:
    async def use(batches: StreamBatches) -> None:
        await asyncio.sleep(60)
        await batches.ready()
        first = batches.take(RUN_BATCH)[1].tolist()
        second = batches.take(RUN_BATCH)[1].tolist()
        batches.take_back()
        assert batches.take(RUN_BATCH)[1].tolist() == first
        batches.settle()
        assert batches.take(RUN_BATCH)[1].tolist() == second
        assert first + second == list(range(len(first + second)))

    streaming(lambda: steady(50), use)


def test_the_steps_of_an_update_share_what_is_there() -> None:
    async def use(batches: StreamBatches) -> list[int]:
        await batches.ready(steps=4)
        return [len(batches.take(RUN_BATCH)[1]) for _ in range(4)]

    assert streaming(lambda: steady(2), use) == [2, 2, 2, 2]


def test_where_nothing_is_left_the_last_batch_comes_again() -> None:
    async def use(batches: StreamBatches) -> None:
        await batches.ready()
        first = batches.take(RUN_BATCH)[1].tolist()
        assert batches.take(RUN_BATCH)[1].tolist() == first

    streaming(lambda: steady(2), use)


def test_the_end_of_a_stream() -> None:
    async def use(batches: StreamBatches) -> list[int]:
        sizes = []
        for _ in range(3):
            await batches.ready()
            sizes.append(len(batches.take(RUN_BATCH)[1]))
        with pytest.raises(StreamOver):
            await batches.ready()
        return sizes

    assert streaming(lambda: listed(19), use) == [8, 8, 3]


def test_what_the_source_raises_comes_out() -> None:
    async def broken() -> AsyncGenerator[Chunk, None]:
        yield chunk(0, 3)
        raise ConfigError("no such thing")

    async def use(batches: StreamBatches) -> None:
        with pytest.raises(ConfigError, match="no such thing"):
            await batches.ready()

    streaming(broken, use)


def test_whoever_leaves_early_ends_the_source() -> None:
    ended = []

    async def endless() -> AsyncGenerator[Chunk, None]:
        try:
            while True:
                yield chunk(0, 1)
        finally:
            ended.append(True)

    async def use(batches: StreamBatches) -> None:
        await batches.ready()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        streaming(endless, use)
    assert ended == [True]


def test_a_source_that_is_too_fast_costs_drops_not_memory() -> None:
    async def use(batches: StreamBatches) -> tuple[int, int]:
        await asyncio.sleep(100)
        facts = batches.facts()
        return facts.depth, facts.drops

    each = 4 + 8
    depth, drops = streaming(lambda: steady(1000), use, Truncation(seconds=1e9, quota_bytes=500 * each))
    assert depth <= 500
    assert depth + drops >= 99_000


def test_facts() -> None:
    tally = Skipped()
    tally.add("unreadable", "detail", 3)

    async def use(batches: StreamBatches) -> None:
        assert (batches.facts().depth, batches.facts().rate) == (0, 0)
        await asyncio.sleep(30.1)
        facts = batches.facts()
        assert facts.rate == pytest.approx(40, rel=0.1)
        assert (facts.depth, facts.broken) == (50, 3)
        assert facts.drops == 1200 - 50
        assert 1.0 < facts.age <= 1.3
        assert batches.telemetry() == {
            "depth": 50,
            "drops": 1150,
            "age": facts.age,
            "rate": facts.rate,
            "broken": 3,
        }

    streaming(lambda: steady(40), use, Truncation(seconds=1.15), tally)


async def test_training_takes_in_its_own_thread_while_the_source_feeds() -> None:
    async def fast() -> AsyncGenerator[Chunk, None]:
        for first in range(0, 20_000, 20):
            yield chunk(first, 20)

    got: list[int] = []
    async with StreamBatches(fast(), Truncation(seconds=1e9), Skipped()) as batches:
        while len(got) < 20_000:
            try:
                await batches.ready()
            except StreamOver:
                break
            got += await asyncio.to_thread(lambda: batches.take(RUN_BATCH)[1].tolist())
            batches.settle()
    assert got == list(range(20_000))
