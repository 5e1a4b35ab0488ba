"""Batches of a stream: as large as its rate, and no waiting but for its own samples."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.client.data.batcher import NoUsableSamples, StreamEnded
from edgeflock.client.data.checks import Checks, SampleSchema
from edgeflock.client.data.records import OVERRUN, Skipped, SourceProgress, StreamChunk
from edgeflock.client.data.sources.synthetic import Passes, replay
from edgeflock.client.data.stream_batches import StreamBatches
from edgeflock.client.data.stream_buffer import Buffer, Truncation
from edgeflock.client.data.stream_disk import Persistence
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.data.rates import HIGH, LOW, RateCurve, ShiftedCurve, Sine, Steps, curve
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from tests.client.training.fakes import WELCOME

T = TypeVar("T")

RUN_BATCH = 10


def chunk(first: int, count: int) -> StreamChunk:
    i = np.arange(first, first + count)
    return StreamChunk(i[:, np.newaxis].astype(np.float32) % 97, i)


async def steady(rate: int, seconds: float = 1e9, every: float = 0.25) -> AsyncGenerator[StreamChunk, None]:
    """`rate` samples per second, as numbers."""
    clock = asyncio.get_running_loop().time
    sent = 0
    while clock() < seconds:
        due = int(clock() * rate)
        if due > sent:
            yield chunk(sent, due - sent)
            sent = due
        await asyncio.sleep(every)


async def listed(*counts: int) -> AsyncGenerator[StreamChunk, None]:
    first = 0
    for count in counts:
        yield chunk(first, count)
        first += count


def streaming(
    source: Callable[[], AsyncGenerator[StreamChunk, None]],
    use: Callable[[StreamBatches], Awaitable[T]],
    buffer: Buffer | None = None,
    tally: Skipped | None = None,
    high: int = HIGH,
) -> T:
    """What `use` comes to in virtual time."""

    async def main() -> T:
        clock = asyncio.get_running_loop().time
        held = Truncation(seconds=1e9) if buffer is None else buffer
        async with StreamBatches(source(), held, tally or Skipped(), high=high, now=clock) as batches:
            return await use(batches)

    return run_virtually(main())


def test_a_device_says_that_no_samples_come(caplog: pytest.LogCaptureFixture) -> None:
    """After half a minute, and then at growing intervals."""

    async def late() -> AsyncGenerator[StreamChunk, None]:
        yield chunk(0, 3)
        await asyncio.sleep(500)
        yield chunk(3, 100)

    assert streaming(late, lambda batches: batches.ready()) is None
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in said] == [f"no batch for {n} s" for n in (30, 150)]
    assert said[0].endswith(
        ": 3 of 8 samples (client.batch_min) have come; does anything send to client.data?"
    )


@pytest.mark.parametrize(("rate", "size"), [(3, 8), (38, 38), (300, 300), (2000, 1024)])
def test_a_batch_is_what_a_second_brings(rate: int, size: int) -> None:
    async def use(batches: StreamBatches) -> int:
        await batches.ready()
        batches.take(RUN_BATCH)
        batches.settle()
        await asyncio.sleep(60)
        await batches.ready()
        _, y = batches.take(RUN_BATCH)
        assert batches.telemetry()["rate"] == pytest.approx(rate, rel=0.1)
        return len(y)

    assert streaming(lambda: steady(rate), use) == pytest.approx(size, rel=0.1)


def test_nothing_is_dropped_while_a_client_starts() -> None:
    """It takes a minute until it first asks, and each step then half a second."""

    async def use(batches: StreamBatches) -> SampleAccount:
        await asyncio.sleep(60)
        for _ in range(20):
            await batches.ready()
            batches.take(RUN_BATCH)
            await asyncio.sleep(0.5)
            batches.settle()
        return batches.account()

    account = streaming(lambda: steady(20), use, Truncation())
    assert account.drops == 0
    assert account.came == account.trained + account.left >= 20 * 70


def test_a_first_sample_of_another_shape_costs_itself() -> None:
    """Nobody knew the shape when it came; the server says it before the first batch is taken."""
    schema, tally = SampleSchema(), Skipped()
    door = Checks(schema=schema)

    async def source() -> AsyncGenerator[StreamChunk, None]:
        yield door.admit(StreamChunk(np.zeros((1, 5), np.float32), np.zeros(1, np.int64)), tally)
        await asyncio.sleep(1)
        async for one in steady(20):
            yield door.admit(one, tally)

    async def main() -> tuple[int, SampleAccount]:
        clock = asyncio.get_running_loop().time
        checks = Checks(schema=schema)
        async with StreamBatches(source(), Truncation(), tally, now=clock, checks=checks) as batches:
            await asyncio.sleep(0.5)
            schema.shape = chunk(0, 1).x.shape[1:]
            trained = 0
            while trained < 100:
                await batches.ready()
                with suppress(NoUsableSamples):
                    trained += len(batches.take(RUN_BATCH)[1])
                batches.settle()
            return trained, batches.account()

    trained, account = run_virtually(main())
    assert (account.trained, account.quarantined, account.drops) == (trained, 1, 0)


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


@dataclass(frozen=True)
class Trained:
    """What came of training on a stream for some virtual time."""

    batches: list[tuple[float, int]]
    """(when it was taken, its samples)."""
    drops: int
    rate: RateCurve

    def came(self, since: float, until: float) -> float:
        return self.rate.arrivals(max(0.0, until)) - self.rate.arrivals(max(0.0, since))


TICK = 0.051
"""The source brings what came within so many seconds together."""


def trained_on(rate: RateCurve, step: float, seconds: float = 40.0, buffer: Buffer | None = None) -> Trained:
    """A device whose steps take `step` seconds."""

    async def main() -> Trained:
        clock = asyncio.get_running_loop().time
        source = replay(chunk(0, 100_000), rate, Passes(100_000, None, once=False))
        batches: list[tuple[float, int]] = []
        held = Truncation() if buffer is None else buffer
        async with StreamBatches(source, held, Skipped(), now=clock) as stream:
            try:
                async with asyncio.timeout(seconds):
                    while True:
                        await stream.ready()
                        batches.append((clock(), len(stream.take(RUN_BATCH)[1])))
                        await asyncio.sleep(step)
                        stream.settle()
            except TimeoutError:
                return Trained(batches, stream.account().drops, rate)

    return run_virtually(main())


rising_and_falling = st.one_of(
    st.lists(st.tuples(st.floats(2, 20), st.floats(0, 900)), min_size=1, max_size=4).map(
        lambda spans: Steps(
            tuple((sum(length for length, _ in spans[:i]), rate) for i, (_, rate) in enumerate(spans))
        )
    ),
    st.builds(
        lambda low, more, period: Sine(low, low + more, period),
        st.floats(0, 400), st.floats(0, 500), st.floats(3, 60),
    ),
    st.builds(
        lambda first, second, period: Steps(((0, first), (period / 2, second)), period),
        st.floats(0, 900), st.floats(0, 900) | st.just(0.0), st.floats(1, 40),
    ),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(rate=rising_and_falling, step=st.floats(0.01, 0.8))
@example(rate=Steps(((0, 500), (15, 20))), step=0.05)
@example(rate=Steps(((0, 64), (15, 16))), step=0.05)
@example(rate=Steps(((0, 3), (10.3, 500))), step=0.05)
@example(rate=Steps(((0, 0), (1, 900)), 10), step=0.05)
@example(rate=Sine(12, 108, 60), step=0.05)
@example(rate=ShiftedCurve(Sine(12, 108, 20), 5), step=0.8)
def test_batches_are_what_arrived_however_the_rate_changes(rate: RateCurve, step: float) -> None:
    ran = trained_on(rate, step)
    assert ran.drops == 0
    for (before, _), (now, size) in pairwise([(0.0, 0), *ran.batches]):
        if now - before > 1.5:
            assert ran.came(before - TICK, now - 1.5 + 0.5) < LOW + 1, "samples wait, and nobody takes them"
        # All that came since the batch before, which is of the last second.
        if size > LOW and now - before >= 0.8:
            assert ran.came(now - 0.85, now - TICK) - 2 <= size <= ran.came(now - 1.0 - TICK, now) + LOW


@pytest.mark.parametrize("step", [0.05, 0.8])
@pytest.mark.parametrize("rate", ["40", "900", "sine:12..108/60s", "sine:100..900/30s"])
def test_a_batch_is_nearly_what_the_last_second_brought(rate: str, step: float) -> None:
    ran = trained_on(curve(rate, np.random.default_rng(0)), step)
    for now, size in ran.batches[1:]:
        assert size == pytest.approx(ran.came(now - 1, now), rel=0.2, abs=2)


def test_a_stream_that_pauses_is_taken_to_its_last_batch() -> None:
    ran = trained_on(Steps(((0, 100), (10, 0), (30, 100))), 0.05)
    left = 1000 - sum(size for when, size in ran.batches if when < 12)
    assert 0 <= left < LOW
    assert not [when for when, _ in ran.batches if 12 < when < 30]


def test_what_is_beyond_the_largest_batch_is_taken_as_it_comes() -> None:
    ran = trained_on(Steps(((0, 4000),)), 0.05)
    assert {size for _, size in ran.batches[1:]} == {1024}
    assert ran.drops == 0


def test_persistence_takes_a_backlog_a_second_of_it_at_a_time(tmp_path: Path) -> None:
    ran = trained_on(Steps(((0, 100), (10, 0))), 1.5, buffer=Persistence(tmp_path / "kept.db", 1 << 24))
    assert ran.drops == 0
    sizes = [size for _, size in ran.batches]
    assert sum(sizes) > 1000 - LOW
    assert all(size == pytest.approx(100, abs=11) for size in sizes[:-1])


def test_samples_from_before_the_clock_was_set_back_are_taken_at_once(tmp_path: Path) -> None:
    kept = Persistence(tmp_path / "kept.db", 1 << 20)
    kept.add(chunk(0, 20), 3600.0)

    async def use(batches: StreamBatches) -> tuple[float, int]:
        await batches.ready()
        return asyncio.get_running_loop().time(), len(batches.take(RUN_BATCH)[1])

    assert streaming(lambda: steady(0), use, kept) == (0.0, 20)


@pytest.mark.parametrize("buffer", ["truncation", "persistence"])
def test_the_steps_of_an_update_share_one_batch_however_long_they_take(buffer: str, tmp_path: Path) -> None:
    async def use(batches: StreamBatches) -> list[int]:
        sizes = []
        await batches.ready()
        batches.take(RUN_BATCH)
        await asyncio.sleep(3)
        await batches.ready(steps=4)
        for _ in range(4):
            sizes.append(len(batches.take(RUN_BATCH)[1]))
            await asyncio.sleep(0.5)
        return sizes

    held = Truncation() if buffer == "truncation" else Persistence(tmp_path / "stream.db", 1 << 20)
    sizes = streaming(lambda: steady(40), use, held)
    assert sum(sizes) == pytest.approx(40, abs=11)
    assert max(sizes) - min(sizes) <= 1


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
        with pytest.raises(StreamEnded):
            await batches.ready()
        return sizes

    assert streaming(lambda: listed(19), use, high=8) == [8, 8, 3]


def test_what_the_source_raises_comes_out() -> None:
    async def broken() -> AsyncGenerator[StreamChunk, None]:
        yield chunk(0, 3)
        raise ConfigError("no such thing")

    async def use(batches: StreamBatches) -> None:
        with pytest.raises(ConfigError, match="no such thing"):
            await batches.ready()

    streaming(broken, use)


def test_whoever_leaves_early_ends_the_source() -> None:
    ended = []

    async def endless() -> AsyncGenerator[StreamChunk, None]:
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
        account = batches.account()
        return account.left, account.drops

    each = 4 + 8
    depth, drops = streaming(lambda: steady(1000), use, Truncation(seconds=1e9, quota_bytes=500 * each))
    assert depth <= 500
    assert depth + drops >= 99_000


def test_telemetry() -> None:
    tally = Skipped()
    tally.add("unreadable", "detail", 3)
    tally.add(OVERRUN, "detail", 2)

    async def use(batches: StreamBatches) -> None:
        assert (batches.telemetry()["depth"], batches.telemetry()["rate"]) == (0, 0)
        await batches.ready()
        await asyncio.sleep(30.1 - asyncio.get_running_loop().time())
        reported = batches.telemetry()
        assert reported.pop("rate") == pytest.approx(40, rel=0.1)
        assert 1.0 < float(reported.pop("age")) <= 1.3
        assert reported.pop("waiting") == 0
        assert reported == {
            "depth": 50,
            "drops": 1152,
            "quarantined": 3,
            "duplicates": 0,
            "trained": 0,
            "came": 1205,
            "left": 50,
        }

    streaming(lambda: steady(40), use, Truncation(seconds=1.15), tally)


def test_a_starved_stream_says_so() -> None:
    async def use(batches: StreamBatches) -> tuple[object, object]:
        starving = asyncio.create_task(batches.ready())
        await asyncio.sleep(7)
        before = batches.telemetry()["waiting"]
        await starving
        return before, batches.telemetry()["waiting"]

    async def late() -> AsyncGenerator[StreamChunk, None]:
        await asyncio.sleep(10)
        yield chunk(0, 8)

    assert streaming(late, use) == (7.0, 0.0)


class TwoClasses:
    """A backend that knows classes 0 and 1."""

    layout = Layout.from_shapes([("w", [2])])

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        if (y > 1).any():  # type: ignore[operator]
            raise ConfigError("no such class")
        return Gradient(0.0, np.zeros(2, np.float32), np.zeros(0, np.float32))


def test_what_is_unfit_when_it_is_read_back_costs_itself_alone(tmp_path: Path) -> None:
    """As of a file that was filled before anybody looked; once more after a restart."""
    path = tmp_path / "kept.db"
    x, y = np.zeros((40, 1), np.float32), np.arange(40) % 2
    x[5], y[7] = 1e30, 9
    y[8:16] = 9
    filled = Persistence(path, 1 << 20)
    filled.add(StreamChunk(x, y), 0.0)
    filled.close()

    async def use(batches: StreamBatches) -> list[int]:
        batches.begin(WELCOME, TwoClasses())
        sizes = []
        for settle in (False, True, True):
            await batches.ready()
            sizes.append(len(batches.take(RUN_BATCH)[1]))
            batches.settle() if settle else batches.take_back()
        account = batches.account()
        assert (account.trained, account.quarantined, account.left) == (6 + 8, 10, 16)
        return sizes

    async def silent() -> AsyncGenerator[StreamChunk, None]:
        await asyncio.sleep(3600)
        yield chunk(0, 1)

    assert streaming(silent, use, Persistence(path, 1 << 20), high=8) == [6, 6, 8]
    after = Persistence(path, 1 << 20)
    assert len(after) == 16
    after.close()


@pytest.mark.parametrize("first", [True, False])
def test_where_nothing_fits_there_is_no_batch(first: bool) -> None:
    """Also of the first that come."""

    async def bad() -> AsyncGenerator[StreamChunk, None]:
        labels = [np.array([0, 1] * 4), np.full(8, 7)]
        for y in labels if first else labels[::-1]:
            yield StreamChunk(np.zeros((8, 1), np.float32), y)
            await asyncio.sleep(2)
        yield StreamChunk(np.zeros((8, 1), np.float32), np.array([0, 1] * 4))

    async def use(batches: StreamBatches) -> None:
        batches.begin(WELCOME, TwoClasses())
        for good in first, not first, True:
            await batches.ready()
            if good:
                assert len(batches.take(RUN_BATCH)[1]) == 8
            else:
                with pytest.raises(NoUsableSamples):
                    batches.take(RUN_BATCH)
            batches.settle()
        account = batches.account()
        assert (account.trained, account.quarantined) == (16, 8)

    streaming(bad, use)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30), st.floats(0, 2)),
        st.tuples(st.just("train"), st.sampled_from(["settle", "back", "stop"]), st.integers(1, 3)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", ["truncation", "persistence"])
@settings(max_examples=30, deadline=None)
@given(actions=ACTIONS)
def test_every_sample_is_accounted_for(kind: str, actions: list[tuple[str, Any, Any]]) -> None:
    """Bad ones, duplicates, too many, taken back, left."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kept.db"
        quota = 200 * 16

        async def main() -> SampleAccount:
            clock = asyncio.get_running_loop().time
            inbox: asyncio.Queue[StreamChunk] = asyncio.Queue()
            tally = Skipped()

            async def source() -> AsyncGenerator[StreamChunk, None]:
                while True:
                    yield await inbox.get()

            buffer = Truncation(quota_bytes=quota) if kind == "truncation" else Persistence(path, quota)
            sent = 0
            async with StreamBatches(source(), buffer, tally, low=4, high=16, now=clock) as batches:
                batches.begin(WELCOME, TwoClasses())
                for what, one, other in actions:
                    if what == "add":
                        i = np.arange(sent, sent + one)
                        keys = tuple(str(each // 3) for each in i)
                        labels = np.where(i % 7 == 3, 5, i % 2)
                        inbox.put_nowait(StreamChunk(i[:, np.newaxis].astype(np.float32), labels, keys))
                        sent += one
                        await asyncio.sleep(other)
                        continue
                    try:
                        async with asyncio.timeout(2):
                            await batches.ready(other)
                        for _ in range(other):
                            batches.take(RUN_BATCH)
                    except (TimeoutError, NoUsableSamples):
                        pass
                    if one != "stop":
                        batches.settle() if one == "settle" else batches.take_back()
                account = batches.account()
                assert account.came == sent
                return account

        account = run_virtually(main())
    ended = account.trained + account.drops + account.quarantined + account.duplicates + account.left
    assert account.came == ended


async def test_training_takes_in_its_own_thread_while_the_source_feeds() -> None:
    async def fast() -> AsyncGenerator[StreamChunk, None]:
        for first in range(0, 20_000, 20):
            yield chunk(first, 20)

    got: list[int] = []
    async with StreamBatches(fast(), Truncation(seconds=1e9), Skipped()) as batches:
        while len(got) < 20_000:
            try:
                await batches.ready()
            except StreamEnded:
                break
            got += await asyncio.to_thread(lambda: batches.take(RUN_BATCH)[1].tolist())
            batches.settle()
    assert got == list(range(20_000))


@pytest.mark.parametrize("is_durable", [False, True], ids=["memory", "disk"])
def test_a_source_knows_how_much_need_not_come_again(is_durable: bool, tmp_path: Path) -> None:
    """What waits in memory, or was taken and is not settled, must; on disk nothing."""
    tally = Skipped()
    buffer = Persistence(tmp_path / "kept.db", 1 << 20) if is_durable else Truncation(seconds=1e9)
    assert tally.progress() == SourceProgress(0, 0)

    async def use(batches: StreamBatches) -> list[int]:
        done = []
        await batches.ready()
        done.append(tally.progress().done)
        batches.take(0)
        done.append(tally.progress().done)
        batches.take_back()
        done.append(tally.progress().done)
        batches.take(0)
        batches.settle()
        assert tally.progress().received == 16
        return [*done, tally.progress().done]

    assert streaming(lambda: listed(16), use, buffer, tally) == ([16] * 4 if is_durable else [0, 0, 0, 16])
