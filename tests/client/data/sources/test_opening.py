"""Sources by URI, of files and stored data. Brokers have their own tests."""

import asyncio
import math
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources import open_source
from edgeflock.client.data.sources import opening as sources
from edgeflock.client.data.sources.files import LEDGER
from edgeflock.client.data.uri import Uri
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.data.datasets import load
from edgeflock.shared.data.recent import LaggedFeatures
from edgeflock.shared.errors import ConfigError

COUNT = 50


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """50 numbered samples: x[i] = (i, -i), y[i] = i."""
    i = np.arange(COUNT)
    np.savez(tmp_path / "data.npz", x_train=np.stack([i, -i], axis=1).astype(np.float32), y_train=i)
    return f"npz:{tmp_path / 'data.npz'}"


async def everything(uri: str, tally: Skipped | None = None) -> list[StreamChunk]:
    return [chunk async for chunk in open_source(uri, tally)]


async def during(uri: str, seconds: float) -> list[tuple[float, StreamChunk]]:
    """(when, what) a source yields, until so many seconds are over."""
    clock = asyncio.get_running_loop().time
    got = []
    try:
        async with asyncio.timeout(seconds), aclosing(open_source(uri)) as chunks:
            async for chunk in chunks:
                got.append((clock(), chunk))
    except TimeoutError:
        pass
    return got


def labels(chunks: list[StreamChunk]) -> list[int]:
    return [label for chunk in chunks for label in chunk.y.tolist()]


async def test_features_of_the_past_and_checks_go_with_any_source(archive: str) -> None:
    tally = Skipped()
    uri = f"synthetic:{archive}?rate=100000&once&window=4&lags=2&classes=30"
    chunks = await everything(uri, tally)
    whole = load(archive, "train")
    first = StreamChunk(whole.x[:30], whole.y[:30])
    assert (
        np.concatenate([chunk.x for chunk in chunks]).tobytes()
        == LaggedFeatures(4, 2, 30).extend(first).x.tobytes()
    )
    assert tally.counts == {"of another target": 20}


async def test_a_new_source_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    async def counting(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
        uri.check_options("step")
        for i in range(3):
            yield StreamChunk(np.full((1, 2), i, np.float32), np.array([i * uri.integer("step")]))

    monkeypatch.setitem(sources.SOURCES, "counting", counting)
    assert labels(await everything("counting:?step=5")) == [0, 5, 10]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "",
            "known are digits:, npz:, csv:, parquet:, images:, dir:, stdin:, python:, mqtt:, mqtts:, ",
        ),
        ("my/a.csv", "; a table is csv:my/a.csv?label=COLUMN"),
        ("ftp:x", "data 'ftp:x': known are"),
        ("synthetic:digits:?rate=9&window=few", "window=few must be a whole number"),
        ("synthetic:digits:?rate=9&shape=3x3", "shape=3x3 must be sizes"),
        ("synthetic:digits:?rate=9&targets=some", "targets=some must be classes or numbers"),
        ("synthetic:digits:?rate=9&window=3", "window= and lags= take samples that are lists"),
        ("dir:/tmp?every=3", "option 'every' is unknown; known are poll"),
        ("dir:/tmp?poll=often", "poll=often must be seconds"),
        ("http://host/path?poll=0", "poll=0 must be seconds, 0.01 or more"),
        ("mqtt:broker", "must be mqtt://host:port/topic"),
        ("mqtt://host", "must be mqtt://host:port/topic"),
        ("mqtt://host:many/topic", "data 'mqtt://host:many/topic'"),
        ("mqtt://me:secret@host", "data 'mqtt://host': must be"),
        ("mqtt://host/topic?qos=3", "option 'qos' is unknown"),
        ("kafka://host/topic?from=now", "from=now must be latest or earliest"),
        ("mqtt://me@host/t?password_env=NOWHERE_SET", "there is no such variable"),
        ("mqtt://me@host/t?password_file=/nowhere", "password_file=/nowhere cannot be read"),
        ("mqtt://me@host/t?password_file=/a&password_env=B", "leave one of them out"),
        ("mqtt://host/t?ca=x", "ca= goes with mqtts:"),
        ("mqtts://host/t?ca=/nowhere.pem", "ca=/nowhere.pem"),
        ("kafka://me:secret@host/topic", "PLAIN sends the password as it is"),
        ("kafkas://me@host/topic", "a user and a password go together"),
        ("kafka://host/topic?sasl=SCRAM-SHA-256", "sasl= needs a user"),
        ("kafkas://me:secret@host/topic?sasl=GSSAPI", "sasl=GSSAPI must be PLAIN, SCRAM-SHA-256 or"),
        ("http:///path", "must be http://host/path"),
        ("http://host/path?poll=never&api_key=secret", "poll=never must be seconds"),
        ("http://host/path?ca=x", "ca= goes with https:"),
        ("stdin:?x=a,,b", "x=a,,b must be names such as a,b"),
        ("stdin:readings.csv", "stdin takes no path"),
        ("stdin:?format=xml", "format=xml must be csv or json"),
        ("stdin:?sep=--", "sep=-- must be one character, or tab"),
        ("csv:/nowhere.csv", "there is no such file"),
        ("csv:/tmp?follow", "/tmp cannot be read"),
        ("python:nothing", "must be python:package.module:generator"),
        ("python:no.such.module:name", "ModuleNotFoundError"),
        ("python:./nowhere.py:name", "FileNotFoundError"),
        ("python:operator:neg?a=1", "the options do not fit its arguments"),
        ("python:os:getcwd", "must be a generator function; it returned a str"),
        ("python:math:pi", "is no function"),
        ("synthetic:digits:", "needs rate="),
        ("synthetic:digits:?rates=0:4", "needs rate="),
        ("synthetic:digits:?rate=fast", "rate 'fast' must be"),
        ("synthetic:digits:?rate=4&order=random", "order=random must be kept or shuffled"),
        ("synthetic:digits:?rate=4&speed=3", "option 'speed' is unknown"),
        ("synthetic:dir:/tmp?rate=3", "only stored data are replayed: digits:, npz:"),
        ("synthetic:npz:/nowhere.npz?rate=3", "there is no such file"),
    ],
)
async def test_the_error_names_the_uri_and_what_is_wrong(uri: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await everything(uri)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "module"), [("mqtt://localhost/t", "aiomqtt"), ("kafka://localhost/t", "aiokafka")]
)
async def test_a_missing_library_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, uri: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"needs {module}: pip install '.*\[streams\]'"):
        await everything(uri)


# synthetic:


@pytest.mark.parametrize("rate", [0.5, 3, 64, 1000, 20_000])
def test_samples_come_at_their_rate(archive: str, rate: float) -> None:
    got = run_virtually(during(f"synthetic:{archive}?rate={rate}", 20.01))
    arrivals = [when for when, chunk in got for _ in range(len(chunk))]
    assert len(arrivals) == pytest.approx(rate * 20, abs=max(1, rate * 0.05))
    for number, when in enumerate(arrivals, 1):
        assert number / rate - 1e-6 <= when <= number / rate + 0.0501
    assert labels([chunk for _, chunk in got]) == [i % COUNT for i in range(len(arrivals))]


def test_rates_change_and_may_be_nothing(archive: str) -> None:
    got = run_virtually(during(f"synthetic:{archive}?rate=steps:0:64,5:0,10:8", 15.01))
    counts = [
        sum(len(chunk) for when, chunk in got if start < when <= start + 5.01)
        for start in (0.02, 5.02, 10.02)
    ]
    assert counts == [320, 0, 40]


def test_drawn_rates_are_those_of_the_seed(archive: str) -> None:
    def in_ten_seconds(seed: int) -> int:
        uri = f"synthetic:{archive}?rate=uniform(38,24)&seed={seed}"
        return sum(len(chunk) for _, chunk in run_virtually(during(uri, 10.01)))

    counts = [in_ten_seconds(seed) for seed in range(4)]
    half = 24 * math.sqrt(3)
    assert len(set(counts)) == 4
    assert all(10 <= count <= 10 * (38 + half) for count in counts)
    assert counts == [in_ten_seconds(seed) for seed in range(4)]


def test_once_ends_after_a_pass_and_shuffled_orders_it_anew(archive: str) -> None:
    once = run_virtually(everything(f"synthetic:{archive}?rate=30&once"))
    assert labels(once) == list(range(COUNT))
    shuffled = labels(
        [c for _, c in run_virtually(during(f"synthetic:{archive}?rate=100&order=shuffled", 1.01))]
    )
    first, second = shuffled[:COUNT], shuffled[COUNT : 2 * COUNT]
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second != list(range(COUNT)) != first
    part = run_virtually(everything(f"synthetic:{archive}?part=2/3&rate=100&once"))
    assert labels(part) == load(f"{archive}?part=2/3", "train").y.tolist()


# dir:


def write(path: Path, *numbers: int, **arrays: object) -> None:
    """A file of samples, changed at the second of its first number."""
    x = np.array([[i, -i] for i in numbers], np.float32)
    with open(path, "wb") as file:
        np.savez(file, **({"x": x, "y": np.array(numbers)} | arrays))  # type: ignore[arg-type]
    os.utime(path, (numbers[0], numbers[0]))


def watch(folder: Path, tally: Skipped, *happenings: Callable[[], object]) -> list[int]:
    """What the source yields while a thing happens between each two of its looks."""
    got: list[int] = []

    async def main() -> None:
        async def consume() -> None:
            async for chunk in open_source(f"dir:{folder}?poll=1", tally):
                got.extend(chunk.y.tolist())

        task = asyncio.create_task(consume())
        await asyncio.sleep(0.5)
        for happen in happenings:
            happen()
            await asyncio.sleep(1)
        await asyncio.sleep(2)
        task.cancel()
        await asyncio.wait([task])

    run_virtually(main())
    return got


def test_files_are_taken_as_they_appear_oldest_first_and_once(tmp_path: Path) -> None:
    write(tmp_path / "b.npz", 10, 11)
    write(tmp_path / "a.npz", 12)
    write(tmp_path / ".hidden.npz", 99)
    (tmp_path / "notes.txt").write_text("nothing")
    tally = Skipped()
    got = watch(tmp_path, tally, lambda: write(tmp_path / "0.npz", 20, 21, 22), lambda: None)
    assert got == [10, 11, 12, 20, 21, 22]
    assert tally.total == 0


def test_a_file_is_not_taken_while_it_is_written(tmp_path: Path) -> None:
    write(tmp_path / "whole.tmp", 5, 6, 7)
    octets = (tmp_path / "whole.tmp").read_bytes()
    growing = tmp_path / "growing.npz"
    steps = [partial(growing.write_bytes, octets[:end]) for end in (10, 60, len(octets))]
    tally = Skipped()
    assert watch(tmp_path, tally, *steps) == [5, 6, 7]
    assert tally.total == 0


def test_a_restart_takes_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", 1)
    write(tmp_path / "b b.npz", 2)
    assert watch(tmp_path, Skipped()) == [1, 2]
    with open(tmp_path / LEDGER, "a") as ledger:
        ledger.write("123 4")  # a crash while it was written
    (tmp_path / "a.npz").unlink()
    assert watch(tmp_path, Skipped(), lambda: write(tmp_path / "c.npz", 3)) == [3]
    assert "a.npz" not in (tmp_path / LEDGER).read_text()
    write(tmp_path / "b b.npz", 8)
    assert watch(tmp_path, Skipped()) == [8], "overwritten: a new one"
    assert watch(tmp_path, Skipped()) == []


def test_a_folder_may_come_later_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "data"

    def come() -> None:
        folder.mkdir()
        write(folder / "a.npz", 1)

    assert watch(folder, Skipped(), lambda: None, come, lambda: None) == [1]
    assert len([record for record in caplog.records if "waiting for the folder" in record.message]) == 1


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("unreadable", lambda path: path.write_bytes(b"no archive at all")),
        ("unreadable", lambda path: path.write_bytes(b"")),
        ("unreadable", lambda path: write(path, 1, x=np.array([{}]))),
        ("incomplete", lambda path: write(path, 1, 2, y=np.zeros(1))),
        ("incomplete", lambda path: np.savez(path, images=np.zeros(1), labels=np.zeros(1))),
        ("not numbers", lambda path: write(path, 1, y=np.array(["cat"]))),
        ("too large", lambda path: np.savez_compressed(path, x=np.zeros((1 << 26) + 1, np.float32), y=1)),
    ],
)
def test_broken_files_are_counted_and_passed_over(
    tmp_path: Path, kind: str, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "bad.npz")
    tally = Skipped()
    assert watch(tmp_path, tally, lambda: write(tmp_path / "good.npz", 4)) == [4]
    assert tally.counts == {kind: 1}


def test_images_of_bytes_are_scaled(tmp_path: Path) -> None:
    async def first() -> StreamChunk:
        return await anext(open_source(f"dir:{tmp_path}"))

    write(tmp_path / "a.npz", 1, x=np.full((1, 2, 2), 51, np.uint8))
    chunk = run_virtually(first())
    assert chunk.x.shape == (1, 1, 2, 2)
    assert chunk.x.ravel().tolist() == [np.float32(51) / np.float32(255)] * 4
