"""What is piped in, and files of readings that grow."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources import files, open_source
from edgeflock.devices.emulation.clock import run_virtually


@asynccontextmanager
async def read_stdin() -> AsyncIterator[int]:
    """The end to write to of what is stdin meanwhile."""
    reading, writing = os.pipe()
    before = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield writing
    finally:
        os.dup2(before, 0)
        os.close(before)


def labels(chunks: list[StreamChunk]) -> list[int]:
    return [label for chunk in chunks for label in chunk.y.tolist()]


async def test_lines_are_taken_as_they_are_piped_in() -> None:
    async with read_stdin() as pipe:
        source = open_source("stdin:")
        for i in range(3):
            os.write(pipe, f'{{"x": [{i}], "y": {i}}}\n{{"x": [9'.encode())
            assert (await anext(source)).y.tolist() == [i]
            os.write(pipe, b'], "y": 9}\n')
            assert (await anext(source)).y.tolist() == [9]
        os.write(pipe, b'{"x": [7], "y": 7}')
        os.close(pipe)
        assert labels([chunk async for chunk in source]) == [7]


@pytest.mark.slow
def test_a_file_as_stdin_will_do(tmp_path: Path) -> None:
    (tmp_path / "readings.csv").write_text("a,b,y\n" + "".join(f"{i},{-i},{i}\n" for i in range(50_000)))
    program = (
        "import asyncio\nfrom edgeflock.client.data.sources import open_source\n"
        "async def main():\n    return sum([len(chunk) async for chunk in open_source('stdin:')])\n"
        "print(asyncio.run(main()))"
    )
    with open(tmp_path / "readings.csv") as readings:
        command = [sys.executable, "-c", program]
        assert subprocess.run(command, stdin=readings, capture_output=True).stdout == b"50000\n"


async def test_a_pipe_is_held_back_while_nobody_takes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "QUEUE_SIZE", 2)
    monkeypatch.setattr(files, "BLOCK", 100)
    async with read_stdin() as pipe:
        os.set_blocking(pipe, False)
        source = open_source("stdin:")
        line, written = b'{"x": [1], "y": 1}\n', 0
        os.write(pipe, line)
        assert len(await anext(source)) == 1
        while True:
            try:
                written += os.write(pipe, line * 100)
            except BlockingIOError:
                break
        assert written < 1 << 20, "a pipe's own room, and a few blocks"
        await source.aclose()
        os.close(pipe)


class Followed:
    """What a file of readings yields while things happen to it, by a virtual clock."""

    def __init__(self, path: Path, options: str = "follow") -> None:
        self.got: list[int] = []
        self.keys: list[str | None] = []
        self.tally = Skipped()
        self._uri = f"csv:{path}?{options}"

    def during(self, *happenings: Callable[[], object]) -> list[int]:
        async def consume() -> None:
            async for chunk in open_source(self._uri, self.tally):
                self.got += chunk.y.tolist()
                self.keys += chunk.keys

        async def main() -> None:
            task = asyncio.create_task(consume())
            for happen in happenings:
                await asyncio.sleep(1)
                happen()
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait([task])

        run_virtually(main())
        return self.got


def append(path: Path, lines: str) -> Callable[[], object]:
    def write() -> None:
        with path.open("a") as file:
            file.write(lines)

    return write


async def test_a_table_is_read_once_to_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "readings.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i}\n" for i in range(20_000)) + "1,20000")
    assert labels([chunk async for chunk in open_source(f"csv:{path}")]) == list(range(20_001))


def test_what_is_written_to_its_end_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "readings.csv"
    path.write_text("a,y\n1,1\n2,")
    followed = Followed(path)
    assert followed.during(append(path, "2\n3,3\n"), append(path, "4,4")) == [1, 2, 3]
    assert followed.keys == [f"readings.csv:{path.stat().st_ino}@{at}" for at in (4, 8, 12)]


def test_a_file_may_come_late_begin_anew_and_be_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "readings.csv"

    def replace() -> None:
        (tmp_path / "new").write_text("b,c,y\n1,1,7\n")
        (tmp_path / "new").replace(path)

    followed = Followed(path, "follow&x=b&y=y")
    steps = [append(path, "b,y\n1,1\n2,2\n"), lambda: path.write_text("y,b\n5,1\n"), replace]
    assert followed.during(*steps, append(path, "2,2,8\n")) == [1, 2, 5, 7, 8]
    assert followed.tally.total == 0
    assert caplog.text.count("there is no such file; waiting for it") == 1
