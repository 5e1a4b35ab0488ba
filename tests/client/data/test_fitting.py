"""Advice on inputs in units that models train slowly on."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data.open import open_batches
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.stream_batches import StreamBatches
from edgeflock.client.data.stream_buffer import Truncation
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.shared.settings.client import ClientSettings
from tests.client.training.fakes import WELCOME, FakeBackend


async def test_inputs_far_from_1_are_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "few.npz"
    x = np.random.default_rng(0).normal(1000, 10, (40, 4)).astype(np.float32)
    np.savez(path, x_train=x, y_train=np.arange(40) % 3)
    given = ClientSettings(data=f"synthetic:npz:{path}?rate=100000&once", directory=str(tmp_path))
    async with open_batches(given) as batches:
        batches.begin(WELCOME, FakeBackend())
        for _ in range(2):
            await batches.ready(1)
            assert batches.take(16)[0].mean() > 900
            batches.take_back()
    advice = [record.message for record in caplog.records if "inputs usually reach" in record.message]
    assert len(advice) == 1


async def coming(x: NDArray[np.float32]) -> AsyncGenerator[StreamChunk, None]:
    yield StreamChunk(x, np.zeros(len(x), np.int64))
    await asyncio.sleep(3600)


def test_inputs_of_usual_size_are_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        x = np.random.default_rng(0).uniform(0, 1, (40, 4)).astype(np.float32)
        clock = asyncio.get_running_loop().time
        async with StreamBatches(coming(x), Truncation(seconds=1e9), Skipped(), now=clock) as batches:
            await batches.ready()
            assert batches.take(16)[0].tobytes() == x.tobytes()

    run_virtually(main())
    assert caplog.records == []
