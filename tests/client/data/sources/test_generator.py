"""Generators as sources: sync ones in their thread, async ones in the loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources import generator, open_source
from edgeflock.client.data.sources.handover import from_thread
from edgeflock.shared.errors import ConfigError


def pairs(count: str = "3") -> Iterator[Any]:
    for i in range(int(count)):
        yield [i, -i], i


async def mappings() -> AsyncGenerator[Any, None]:
    for i in range(3):
        await asyncio.sleep(0)
        yield {"x": np.array([i, 2 * i], np.uint8), "y": np.int64(i), "key": f"s{i}"}


def some_broken() -> Iterator[Any]:
    yield from [([1, 2], 0), None, "text", ([1, 2],), {"y": 1}, ([1, "2"], 0), ([3, 4], 1)]


def failing() -> Iterator[Any]:
    yield [1, 2], 0
    raise OSError("the device was pulled out")


async def everything(uri: str, tally: Skipped | None = None) -> list[StreamChunk]:
    return [chunk async for chunk in open_source(uri, tally)]


def labels(chunks: list[StreamChunk]) -> list[int]:
    return [label for chunk in chunks for label in chunk.y.tolist()]


async def test_a_generator_function_is_a_source_and_its_end_the_streams() -> None:
    assert labels(await everything(f"python:{__name__}:pairs")) == [0, 1, 2]
    chunks = await everything(f"python:{__name__}:mappings")
    assert labels(chunks) == [0, 1, 2]
    assert [key for chunk in chunks for key in chunk.keys] == ["s0", "s1", "s2"]


async def test_options_that_are_not_ours_are_its_arguments() -> None:
    assert labels(await everything(f"python:{__name__}:pairs?count=5&classes=4")) == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="do not fit its arguments: got an unexpected keyword argument 'n'"):
        await everything(f"python:{__name__}:pairs?n=5")


async def test_it_may_lie_in_a_file_beside_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "sensor_of_this_test.py").write_text("def read(): return [0.5, 1.0]\n")
    (tmp_path / "my.py").write_text(
        "import sensor_of_this_test\n\ndef readings():\n    yield sensor_of_this_test.read(), 1\n"
    )
    (chunk,) = await everything(f"python:{tmp_path}/my.py:readings")
    assert (chunk.x.tolist(), chunk.y.tolist()) == ([[0.5, 1.0]], [1])


async def test_what_is_no_sample_is_counted() -> None:
    tally = Skipped()
    assert labels(await everything(f"python:{__name__}:some_broken", tally)) == [0, 1]
    assert tally.counts == {"incomplete": 4, "not numbers": 1}


async def test_what_it_raises_ends_the_stream_and_names_it() -> None:
    source = open_source(f"python:{__name__}:failing")
    assert (await anext(source)).y.tolist() == [0]
    with pytest.raises(ConfigError, match="failing': it raised OSError: the device was pulled out"):
        await anext(source)


async def test_a_thread_is_not_asked_for_more_than_may_wait() -> None:
    made, released = [], threading.Event()

    def counting() -> Generator[int, None, None]:
        for i in range(1000):
            made.append(i)
            if i == 7:
                released.set()
            yield i

    async with aclosing(from_thread(counting(), 7)) as several:
        got = await anext(several)
        while len(got) < 1000:
            before = len(got)
            assert len(made) <= before + 7 + 1
            got += await anext(several)
            assert len(got) - before <= 7
    assert released.is_set()
    assert got == list(range(1000))


async def test_a_generator_that_is_left_is_closed() -> None:
    closed = threading.Event()

    def endless() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    several = from_thread(endless(), 3)
    await anext(several)
    await several.aclose()
    assert await asyncio.to_thread(closed.wait, 60)


async def test_samples_wait_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "QUEUE_SIZE", 10)
    chunks = await everything(f"python:{__name__}:pairs?count=100")
    assert labels(chunks) == list(range(100))
    assert max(len(chunk) for chunk in chunks) <= 10
