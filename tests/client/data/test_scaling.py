"""Inputs in units of their own: what moves them, and what does not."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.client.data.open import open_batches
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.scaling import CLIP, MIN_WINDOW, WINDOW, WINDOW_BYTES, Scaling
from edgeflock.client.data.stream_batches import Backlog, StreamBatches
from edgeflock.client.data.stream_buffer import Buffer, Truncation
from edgeflock.client.data.stream_disk import Persistence
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.settings.client import ClientSettings
from tests.client.training.fakes import WELCOME, FakeBackend

CENTRES = np.array([0.0, 5.0, -1e4, 1e-3], np.float32)
WIDTHS = np.array([1.0, 1e-3, 300.0, 1e-5], np.float32)
SHAPE = (2, 2)


def samples(count: int, seed: int = 0) -> NDArray[np.float32]:
    """[count, 2, 2], normal, each number in other units."""
    normal = np.random.default_rng(seed).standard_normal((count, 4), np.float32)
    return (CENTRES + WIDTHS * normal).reshape(count, *SHAPE)


def units(scaling: Scaling) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Where the centre comes to lie, and a width of the inputs."""
    middle, above = scaling.scale(np.stack((CENTRES, CENTRES + WIDTHS)).reshape(2, *SHAPE)).reshape(2, 4)
    return middle, above - middle


def test_numbers_of_any_units_come_to_lie_around_0_with_a_spread_of_1() -> None:
    scaling = Scaling()
    x = samples(WINDOW)
    scaling.learn(x)
    scaled = scaling.scale(x)
    assert scaled.shape == x.shape
    assert scaled.dtype == np.float32
    assert np.median(scaled, axis=0) == pytest.approx(0, abs=0.02)
    assert scaled.std(axis=0) == pytest.approx(1, abs=0.2)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(100, 700),
    share=st.floats(0, 0.2),
    far=st.lists(st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False), min_size=1, max_size=4),
    seed=st.integers(0, 999),
)
def test_outliers_up_to_a_fifth_move_it_no_further_than_a_bound(
    count: int, share: float, far: list[float], seed: int
) -> None:
    """Wherever they lie: the median by 0.32 of a standard deviation, the spread to 0.73 to 1.5 of it, if
    there were no chance in the others.
    """
    x = samples(count, seed)
    spoilt = np.arange(count) % 5 == 0
    spoilt[np.cumsum(spoilt) > share * count] = False
    x[spoilt] = np.resize(np.array(far, np.float32), int(spoilt.sum()))[:, None, None]
    scaling = Scaling()
    scaling.learn(x)
    middle, width = units(scaling)
    assert np.abs(middle).max() < 1.2
    assert width.min() > 0.4
    assert width.max() < 2.2
    assert np.abs(scaling.scale(x)).max() <= CLIP


@settings(max_examples=40, deadline=None)
@given(count=st.integers(5, 300), seed=st.integers(0, 999))
def test_few_samples_are_enough_to_keep_a_fifth_of_them_from_settling_it(count: int, seed: int) -> None:
    x = samples(count, seed)
    x[: count // 5] = 1e30
    good = x[count // 5 :]
    scaling = Scaling()
    scaling.learn(x)
    assert np.abs(scaling.scale(good.min(axis=0, keepdims=True))).max() <= CLIP
    middle = scaling.scale(good)
    assert (middle.min(axis=0) <= 0).all(), "the median lies among the good"
    assert (middle.max(axis=0) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(value=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False), count=st.integers(1, 300))
def test_what_never_changes_is_0(value: float, count: int) -> None:
    scaling = Scaling()
    x = np.full((count, 3), value, np.float32)
    scaling.learn(x)
    assert (scaling.scale(x) == 0).all()


def test_what_hardly_ever_changes_keeps_its_unit() -> None:
    """Neither a division by nothing nor rounding blown up."""
    scaling = Scaling()
    x = np.zeros((100, 2), np.float32)
    x[:, 1] = np.float32(1e6) + np.float32(0.0625) * (np.arange(100) % 2)
    x[7, 0], x[8, 0] = 3.0, 5000.0
    scaling.learn(x)
    scaled = scaling.scale(x)
    assert (scaled[7, 0], scaled[8, 0]) == (3.0, CLIP)
    assert np.abs(scaled[:, 1]).max() < 0.1


@settings(max_examples=40, deadline=None)
@given(
    before=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, WINDOW - WINDOW // 8), max_size=6),
    unit=st.floats(1e-3, 1e3),
)
def test_a_restarted_one_comes_to_the_same(before: int, cuts: list[int], unit: float) -> None:
    """Once it has seen as many as are kept, however they came, and whatever was before."""
    running, restarted = Scaling(), Scaling()
    if before:
        running.learn(samples(before, 1) * np.float32(unit))
    x = samples(WINDOW, 2)
    edges = [0, *sorted(cuts), WINDOW - WINDOW // 8, WINDOW]
    for start, end in zip(edges, edges[1:], strict=False):
        running.learn(x[start:end])
        restarted.learn(x[start:end])
    probe = samples(50, 3)
    assert running.scale(probe).tobytes() == restarted.scale(probe).tobytes()


def test_memory_is_bounded() -> None:
    """Of large inputs fewer samples are kept."""
    large = Scaling()
    for _ in range(5):
        large.learn(np.ones((40, WINDOW_BYTES // 100), np.float32))
    assert large._window.shape[0] == MIN_WINDOW
    small = Scaling()
    small.learn(samples(5000))
    assert small._window.nbytes == WINDOW * 16


async def coming(*numbers: NDArray[np.float32]) -> AsyncGenerator[StreamChunk, None]:
    for x in numbers:
        yield StreamChunk(x, np.zeros(len(x), np.int64))
        await asyncio.sleep(2)
    await asyncio.sleep(3600)


@pytest.mark.parametrize("kind", ["truncation", "persistence"])
def test_samples_are_scaled_after_the_checks_and_again_the_same_if_they_come_again(
    kind: str, tmp_path: Path
) -> None:
    """The buffer has them as they came, so that also those from before a restart are."""
    x = samples(60).reshape(60, 4)
    x[30] = 1e30
    path = tmp_path / "kept.db"

    def buffer() -> Buffer:
        return Truncation(seconds=1e9) if kind == "truncation" else Persistence(path, 1 << 20)

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        args = coming(x), buffer(), Skipped()
        async with StreamBatches(*args, low=8, high=40, now=clock, scaling=Scaling()) as batches:
            for _ in range(30):
                await batches.ready()
                first = batches.take(10)[0]
                batches.take_back()
            await batches.ready()
            again = batches.take(10)[0]
            assert again.tobytes() == first.tobytes()
            assert again.std(axis=0) == pytest.approx(1, abs=0.4)
            assert len(again) == 39
            batches.settle()
            await batches.ready()
            assert batches.take(10)[0].std(axis=0) == pytest.approx(1, abs=0.5)
        if kind == "persistence":
            args = coming(), buffer(), Skipped()
            async with StreamBatches(*args, low=8, now=clock, scaling=Scaling()) as batches:
                await batches.ready()
                after = batches.take(10)[0]
                assert len(after) == 20
                assert after.std(axis=0) == pytest.approx(1, abs=0.5)

    run_virtually(main())


async def test_a_backlog_is_scaled_too() -> None:
    async with Backlog(coming(samples(64).reshape(64, 4)), Skipped(), 8, scaling=Scaling()) as batches:
        await batches.ready(1)
        assert batches.take(64)[0].std(axis=0) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("scale", [False, True])
async def test_it_is_off_by_default_and_told_of_where_it_is_needed(
    scale: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "few.npz"
    np.savez(path, x_train=samples(40).reshape(40, 4), y_train=np.arange(40) % 3)
    uri = f"synthetic:npz:{path}?rate=100000&once"
    given = ClientSettings(data=uri, directory=str(tmp_path), **({"scale": True} if scale else {}))
    async with open_batches(given) as batches:
        batches.begin(replace(WELCOME, input=(4,)), FakeBackend())
        for _ in range(2):
            await batches.ready(1)
            x = batches.take(16)[0]
            batches.take_back()
    assert (np.abs(x).max() <= CLIP) == scale
    advice = [record.message for record in caplog.records if "client.scale = true" in record.message]
    assert len(advice) == (0 if scale else 1)


def test_inputs_of_usual_size_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        x = np.random.default_rng(0).uniform(0, 1, (40, 4)).astype(np.float32)
        clock = asyncio.get_running_loop().time
        async with StreamBatches(coming(x), Truncation(seconds=1e9), Skipped(), now=clock) as batches:
            await batches.ready()
            assert batches.take(16)[0].tobytes() == x.tobytes()

    run_virtually(main())
    assert caplog.records == []
