"""Both buffers against lists; the one on disk also against crashes."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.client.data.records import StreamChunk
from edgeflock.client.data.stream_buffer import Buffer, Truncation
from edgeflock.client.data.stream_disk import Persistence
from edgeflock.shared.errors import ConfigError

MUCH = 1 << 30


def numbered(first: int, count: int) -> StreamChunk:
    """Samples whose x is (i, -i) and whose y is i."""
    i = np.arange(first, first + count)
    return StreamChunk(np.stack([i, -i], axis=1).astype(np.float32), i.astype(np.int64))


def taken(buffer: Buffer, count: int, now: float = 0.0) -> list[int]:
    x, y = buffer.take(count, now)
    assert x.dtype == np.float32
    assert x.tolist() == [[i, -i] for i in y.tolist()]
    return [int(i) for i in y]


Maker = Callable[[Path], Buffer]
MAKERS: dict[str, Maker] = {
    "truncation": lambda folder: Truncation(seconds=1e9),
    "persistence": lambda folder: Persistence(folder / "stream.db", MUCH),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@settings(max_examples=40)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 40)),
            st.tuples(st.just("take"), st.integers(1, 50)),
            st.tuples(st.just("settle"), st.just(0)),
            st.tuples(st.just("take back"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_first_in_first_out_and_what_is_taken_back_comes_first(
    make: Maker, steps: list[tuple[str, int]]
) -> None:
    with TemporaryDirectory() as folder:
        buffer = make(Path(folder))
        waiting: list[int] = []
        out: list[int] = []
        added = 0
        for now, (step, count) in enumerate(steps):
            if step == "add":
                buffer.add(numbered(added, count), now)
                waiting += range(added, added + count)
                added += count
            elif step == "take" and waiting:
                got = taken(buffer, count, now)
                assert got == waiting[:count]
                out, waiting = out + got, waiting[count:]
            elif step == "settle":
                buffer.settle()
                out = []
            elif step == "take back":
                buffer.take_back()
                out, waiting = [], out + waiting
            assert len(buffer) == len(waiting)
        assert buffer.drops == 0
        if waiting:
            assert taken(buffer, added) == waiting
        buffer.close()


@given(
    arrivals=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 30)), min_size=1, max_size=12),
    pause=st.floats(0, 5),
)
def test_truncation_keeps_the_last_second_and_no_less_than_the_least(
    arrivals: list[tuple[float, int]], pause: float
) -> None:
    buffer = Truncation(seconds=1.0, minimum=8)
    stamps: list[float] = []
    now = 0.0
    for wait, count in arrivals:
        now += wait
        buffer.add(numbered(len(stamps), count), now)
        before, stamps = len(stamps), stamps + [now] * count
        if before < 8 <= len(stamps):  # until now they had to wait
            stamps = [now] * len(stamps)
    now += pause
    recent = sum(now - stamp <= 1 for stamp in stamps)
    kept = min(len(stamps), max(recent, 8))
    assert taken(buffer, MUCH, now) == list(range(len(stamps) - kept, len(stamps)))
    assert buffer.drops == len(stamps) - kept
    assert len(buffer) == 0


def test_truncation_bounds_its_memory_at_any_rate() -> None:
    each = 2 * 4 + 8
    buffer = Truncation(quota_bytes=100 * each)
    for second in range(50):
        buffer.add(numbered(30 * second, 30), 0)
    buffer.add(numbered(5000, 1000), 0)
    assert taken(buffer, MUCH) == list(range(5900, 6000))
    assert buffer.drops == 50 * 30 + 900


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_age_is_that_of_the_oldest_that_waits(make: Maker, tmp_path: Path) -> None:
    buffer = make(tmp_path)
    assert buffer.age(9.0) == 0
    buffer.add(numbered(0, 2), 1.0)
    buffer.add(numbered(2, 2), 4.0)
    assert buffer.age(9.0) == 8
    taken(buffer, 1)
    assert buffer.age(9.0) == 8
    taken(buffer, 1)
    assert buffer.age(9.0) == 5
    assert buffer.age(3.0) == 1, "a clock that went back does not make it young for long"
    buffer.take_back()
    assert buffer.age(9.0) == 8
    taken(buffer, 4)
    assert buffer.age(9.0) == 0
    buffer.close()


# On disk


def test_a_full_disk_quota_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    buffer = Persistence(tmp_path / "stream.db", quota_bytes=20_000)
    for second in range(100):
        buffer.add(numbered(10 * second, 10), second)
    kept = taken(buffer, MUCH)
    assert kept == list(range(1000 - len(kept), 1000))
    assert 20_000 * 0.9 < len(kept) * (8 + 8 + 6.4) <= 20_000
    assert (buffer.drops, buffer.unwritten) == (1000 - len(kept), 0), "the quota, not the disk"
    buffer.close()


def test_a_full_disk_drops_what_arrives_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = Persistence(tmp_path / "stream.db", MUCH)
    buffer.add(numbered(0, 10), 0)
    (pages,) = buffer._db.execute("PRAGMA page_count").fetchone()
    buffer._db.execute(f"PRAGMA max_page_count = {pages}")
    wide = numbered(10, 10_000)
    for _ in range(3):
        buffer.add(wide, 1)
    assert (len(buffer), buffer.drops, buffer.unwritten) == (10, 30_000, 30_000)
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'stream.db'}: the disk is full; samples are dropped until there is room"
    ]
    assert taken(buffer, 4) == [0, 1, 2, 3]
    buffer.settle()
    buffer._db.execute(f"PRAGMA max_page_count = {MUCH}")
    buffer.add(numbered(10, 10), 2)
    assert taken(buffer, MUCH) == list(range(4, 20))
    buffer.settle()
    buffer.close()
    again = Persistence(tmp_path / "stream.db", MUCH)
    assert (len(again), again.drops) == (0, 0)
    again.close()


def test_the_file_stays_near_its_quota(tmp_path: Path) -> None:
    quota = 1 << 20
    buffer = Persistence(tmp_path / "stream.db", quota)
    wide = StreamChunk(np.zeros((64, 256), np.float32), np.zeros(64, np.int64))
    for second in range(200):
        buffer.add(wide, second)
        if second % 3 == 0:
            buffer.take(40, second)
            buffer.settle()
    buffer.close()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < quota * 1.25


def test_what_was_taken_and_is_dropped_meanwhile_is_no_loss(tmp_path: Path) -> None:
    buffer = Persistence(tmp_path / "stream.db", quota_bytes=3 * (10 * 16 + 64))
    for first in (0, 10, 20):
        buffer.add(numbered(first, 10), 0)
    assert taken(buffer, 15) == list(range(15))
    buffer.add(numbered(30, 10), 0)
    assert (buffer.drops, len(buffer)) == (0, 25)
    buffer.add(numbered(40, 10), 0)
    assert (buffer.drops, len(buffer)) == (5, 30)
    assert taken(buffer, MUCH) == list(range(20, 50))
    buffer.close()


def test_it_survives_a_restart_with_what_was_not_settled(tmp_path: Path) -> None:
    path = tmp_path / "stream.db"
    buffer = Persistence(path, MUCH)
    buffer.add(numbered(0, 20), 3.0)
    buffer.add(numbered(20, 20), 5.0)
    taken(buffer, 7)
    buffer.settle()
    taken(buffer, 20)
    buffer.close()
    again = Persistence(path, MUCH)
    assert len(again) == 33
    assert again.age(10.0) == 7
    assert taken(again, 100) == list(range(7, 40))
    again.close()


@pytest.mark.parametrize(
    "other",
    [
        StreamChunk(np.zeros((1, 3), np.float32), np.zeros(1, np.int64)),
        StreamChunk(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.int64)),
        StreamChunk(np.zeros((1, 2), np.float32), np.zeros(1, np.float32)),
    ],
    ids=["shape", "shape of targets", "kind of targets"],
)
def test_samples_of_another_kind_are_kept_apart(
    tmp_path: Path, other: StreamChunk, caplog: pytest.LogCaptureFixture
) -> None:
    """One comes first, a broken one; the others are as they were. Whoever reads them back says which fit."""
    buffer = Persistence(tmp_path / "stream.db", MUCH)
    buffer.add(other, 0)
    buffer.add(numbered(0, 3), 0)
    assert caplog.messages == [], "all of this stream"
    buffer.close()
    again = Persistence(tmp_path / "stream.db", MUCH)
    again.add(numbered(3, 3), 0)
    assert "stream.db holds samples of another kind from before" in caplog.text
    x, y = again.take(10, 0)
    assert (x.shape, y.shape, y.dtype) == (other.x.shape, other.y.shape, other.y.dtype)
    assert taken(again, 10) == list(range(6))
    again.take_back()
    assert len(again) == 7
    again.settle()
    again.add(numbered(6, 3), 0)
    assert len(caplog.messages) == 1
    again.close()


def test_images_and_float_targets_come_back_as_they_were(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = StreamChunk(random.random((300, 3, 8, 8), np.float32), random.random((300, 2), np.float32))
    buffer = Persistence(tmp_path / "stream.db", MUCH)
    buffer.add(images, 0)
    x, y = buffer.take(300, 0)
    assert x.tobytes() == images.x.tobytes()
    assert y.dtype == np.float32
    assert y.tobytes() == images.y.tobytes()
    buffer.close()


def test_what_is_no_buffer_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, " * 100)
    with pytest.raises(ConfigError, match="text cannot hold a stream"):
        Persistence(tmp_path / "text", MUCH)
    with pytest.raises(ConfigError, match="cannot hold a stream"):
        Persistence(tmp_path / "nowhere" / "stream.db", MUCH)


WRITER = """
import sys
from pathlib import Path
from edgeflock.client.data.stream_disk import Persistence
from tests.client.data.test_stream_buffer import numbered
buffer = Persistence(Path(sys.argv[1]), 1 << 30)
for i in range(10**9):
    buffer.add(numbered(7 * i, 7), i)
    print(i, flush=True)
"""


def test_a_killed_writer_loses_nothing_it_had_added(tmp_path: Path) -> None:
    path = tmp_path / "stream.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONPATH": "."},
    )
    assert writer.stdout is not None
    with writer.stdout:
        for _ in range(300):
            last = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        last = max([last, *map(int, writer.stdout.read().split())])
    writer.wait()
    buffer = Persistence(path, MUCH)
    held = len(buffer)
    assert held in (7 * (last + 1), 7 * (last + 2)), "whole chunks; the last may not have been told of"
    assert taken(buffer, MUCH) == list(range(held))
    buffer.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
