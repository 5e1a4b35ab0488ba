"""Whole clients in rounds of tasks: each trains on the shards that it holds, until the run is over."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from edgeflock.client.run import run_client
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.client import ClientSettings
from tests.client.backends.graphs import INPUTS, LAYOUT, OUTPUTS
from tests.hosting import hosting
from tests.integration.test_onnx_device import HandMade

RUN = (
    "end.updates=60",
    "local.batch=8",
    "compression.select=1",
    "compression.values=f32",
    "model.module=theirs:Net",
)
TASKS = ("coordination.mode=tasks", "coordination.deadline=3600", "coordination.tasks=2")
SHARDS = ("north", "east", "south")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    for name in SHARDS:
        x, y = (random.standard_normal((40, size)).astype(np.float32) for size in (INPUTS, OUTPUTS))
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y)
    return tmp_path


def client(port: int, stored: Path, number: int, held: int = 2) -> ClientSettings:
    """It holds shard `number`, and so many less one after it."""
    names = [SHARDS[(number + step) % len(SHARDS)] for step in range(held)]
    return ClientSettings.model_validate(
        {
            "server": f"http://127.0.0.1:{port}",
            "name": f"device-{number}",
            "shards": [f"{name}=npz:{stored / name}.npz" for name in names],
            "backend": "onnx",
            "health": False,
        }
    )


async def test_they_train_until_the_run_is_over(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.app.GraphStore", HandMade)
    settings = (*RUN, *TASKS)
    async with hosting(stored / "run", *settings, layout=LAYOUT) as hosted:
        clients = [run_client(client(hosted.port, stored, number)) for number in range(3)]
        progress = await asyncio.gather(*clients)
        assert hosted.engine.published.version == 60
        devices = hosted.registry.devices.values()
        assert sum(device.statistics.updates for device in devices) == 60
        assert 60 - len(progress) <= sum(one.updates for one in progress) <= 60
        assert hosted.engine.tasks is not None
        # Who is told that the run is over in place of an answer does not know what came of its last.
        uncounted = hosted.engine.tasks.status().duplicates - sum(one.duplicates for one in progress)
        assert 0 <= uncounted <= len(progress)


async def test_shards_are_for_runs_of_tasks(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.app.GraphStore", HandMade)
    async with hosting(stored / "run", *RUN, layout=LAYOUT) as hosted:
        with pytest.raises(ConfigError, match="the run has no tasks"):
            await run_client(client(hosted.port, stored, 0))
