"""Files as a backlog: all of it is trained on, in its order, as fast as training goes."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from edgeflock.client.data.backlog import Backlog
from edgeflock.client.data.batcher import StreamEnded
from edgeflock.client.data.open import open_batches
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources import files, is_backlog
from edgeflock.client.data.stream_batches import StreamBatches
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.client import ClientSettings


def numbered(first: int, last: int) -> StreamChunk:
    i = np.arange(first, last)
    return StreamChunk(np.stack([i, -i], axis=1).astype(np.float32), i)


class Source:
    """Chunks of some sizes, and how many of them were asked for."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self.asked = 0

    async def chunks(self) -> AsyncGenerator[StreamChunk, None]:
        at = 0
        for size in self._sizes:
            self.asked += 1
            yield numbered(at, at + size)
            at += size


async def test_everything_comes_once_in_order_in_the_runs_batches() -> None:
    source = Source(20, 3, 4, 30, 2)
    sizes: list[int] = []
    got: list[int] = []
    async with Backlog(source.chunks(), Skipped(), 8) as backlog:
        while len(got) < 59:
            await backlog.ready(1)
            _, y = backlog.take(16)
            got += y.tolist()
            sizes.append(len(y))
            backlog.settle()
        with pytest.raises(StreamEnded):
            await backlog.ready(1)
    assert got == list(range(59))
    assert sizes == [16, 11, 16, 14, 2], "few samples wait for more, until there are none"


async def test_the_source_is_asked_again_only_when_training_has_had_what_it_gave() -> None:
    source = Source(32, 32)
    async with Backlog(source.chunks(), Skipped(), 8) as backlog:
        await asyncio.sleep(0)
        assert source.asked == 0, "not while the client starts"
        for _ in range(2):
            await backlog.ready(1)
            backlog.take(16)
            backlog.settle()
            assert source.asked == 1
        await backlog.ready(1)
        assert source.asked == 2
        reported = backlog.telemetry()
        assert (reported["depth"], reported["drops"], reported["quarantined"]) == (32, 0, 0)


async def test_what_was_taken_back_comes_again_and_steps_share_what_there_is() -> None:
    async with Backlog(Source(20).chunks(), Skipped(), 8) as backlog:
        await backlog.ready(2)
        assert [backlog.take(16)[1].tolist() for _ in range(2)] == [list(range(10)), list(range(10, 20))]
        assert backlog.take(16)[1].tolist() == list(range(10, 20)), "nothing is left: the last batch again"
        backlog.take_back()
        await backlog.ready(1)
        assert backlog.take(16)[1].tolist() == list(range(16))


async def test_what_the_source_raises_is_told() -> None:
    async def broken() -> AsyncGenerator[StreamChunk, None]:
        yield numbered(0, 4)
        raise ConfigError("no more of this")

    async with Backlog(broken(), Skipped(), 8) as backlog:
        with pytest.raises(ConfigError, match="no more of this"):
            await backlog.ready(1)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("dir:/a", True),
        ("csv:/a?follow", True),
        ("dir:/a?live", False),
        ("stdin:", False),
        ("stdin:?backlog", True),
    ],
)
def test_files_wait_and_others_do_not_unless_it_is_said(uri: str, expected: bool) -> None:
    assert is_backlog(uri) is expected
    with pytest.raises(ConfigError, match="leave one of them out"):
        is_backlog("dir:/a?live&backlog")


async def trained(path: Path, updates: int, rows: int) -> list[int]:
    """The labels of so many updates of a run with batches of 100, until `rows` samples were trained on."""
    got: list[int] = []
    async with open_batches(ClientSettings(data=f"dir:{path}?poll=0.01")) as batches:
        assert isinstance(batches, Backlog)
        while updates and len(got) < rows:
            await batches.ready(1)
            got += batches.take(100)[1].tolist()
            batches.settle()
            updates -= 1
    return got


async def test_nothing_of_a_folder_is_lost_and_after_a_crash_one_piece_comes_again(tmp_path: Path) -> None:
    for number in range(2):
        chunk = numbered(2000 * number, 2000 * number + 2000)
        np.savez(tmp_path / f"{number}.npz", x=chunk.x, y=chunk.y)
    before = await trained(tmp_path, 27, 4000)
    after = await trained(tmp_path, 100, 4000 - len(before) + len(before) % files.CHUNK_SAMPLES - 1)
    assert before == list(range(len(before)))
    assert after == list(range(after[0], 4000))
    assert 0 <= len(before) - after[0] <= files.CHUNK_SAMPLES


async def test_a_folder_may_be_live(tmp_path: Path) -> None:
    async with open_batches(ClientSettings(data=f"dir:{tmp_path}?live")) as batches:
        assert isinstance(batches, StreamBatches)
    settings = ClientSettings(data=f"dir:{tmp_path}", buffer=str(tmp_path / "kept.sqlite"))
    async with open_batches(settings) as batches:
        assert isinstance(batches, StreamBatches), "the buffer that the owner named"
