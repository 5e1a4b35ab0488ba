"""The command line, the library and an emulated fleet are one engine: the same run has the same bits."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

import edgeflock as ef
from edgeflock.client.data import Shuffled
from edgeflock.devices.emulation.config import parse
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.server.journal import Journal
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update
from tests.library.api.nets import LINEAR, Linear, sides

X, Y = sides(100)
UPDATES = 12

SETTINGS: dict[str, Any] = {
    "updates": UPDATES,
    "batch": 5,
    "seed": 3,
    "coordination": {"learning_rate": 0.5, "average": 0},
    "compression": {"select": 0.3},
}

TOML = """
[end]
updates = 12
[local]
batch = 5
[model]
seed = 3
module = "tests.library.api.nets:Linear"
data = "npz:{folder}/data.npz"
[coordination]
learning_rate = 0.5
average = 0
[compression]
select = 0.3
"""


CLASSES = {"pi": {"step_ms": 100}}

FLEET = """
[fleet]
devices = 1
data = "npz:{folder}/data.npz"
seeds = [3]
[devices.pi]
step_ms = 100
"""


async def trained(url: str, token: str) -> None:
    """One device trains a server's whole run, on the batches of that of a fleet whose seed is 3."""
    batches = Shuffled(Dataset(X, Y), np.random.default_rng([3, 1, 0]))
    await ef.Client(url, token=token, data=batches, backend="torch", model=LINEAR, health=False).run()


def updates_in(directory: Path) -> list[tuple[Any, ...]]:
    """What each update of a journal says of the model, in order; not which device says it."""
    journal = Journal(directory / "journal.sqlite")
    try:
        frames = [wire.decode(one.frame) for one in journal.updates(0, UPDATES)]
    finally:
        journal.close()
    assert all(isinstance(one, Update) for one in frames)
    return [(one.sequence, one.base, one.indices, one.values, one.count, one.samples) for one in frames]  # type: ignore[union-attr]


@asynccontextmanager
async def command(folder: Path) -> AsyncIterator[str]:
    """`edgeflock server` on a port of its own, open to everybody here: its URL."""
    (folder / "run.toml").write_text(TOML.format(folder=folder))
    own = [f"server.directory={folder / 'cli'}", "server.port=0", "server.open=true"]
    program = [sys.executable, "-m", "edgeflock", "server", str(folder / "run.toml"), "--json"]
    program += [part for setting in own for part in ("--set", setting)]
    process = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline())["url"]
    finally:
        process.terminate()
        await process.communicate()  # to the end of its pipe


@pytest.mark.slow
async def test_the_same_run_has_the_same_bits_through_each_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "data.npz", x_train=X, y_train=Y, x_test=X, y_test=Y)
    root = Path(__file__).parents[3]
    path = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    async with ef.Server(LINEAR, directory=tmp_path / "library", evaluate=(X, Y), **SETTINGS) as server:
        await trained(server.url, server.token)
        result = await server.until()
    async with command(tmp_path) as url, aiohttp.ClientSession() as http:
        await trained(url, "")
        async with http.get(f"{url}/v1/model") as response:
            assert response.headers["X-Edgeflock-Version"] == str(UPDATES)
            by_command = await response.read()
    assert by_command == result.theta.astype("<f4").tobytes()
    assert updates_in(tmp_path / "cli") == updates_in(tmp_path / "library")

    fleet = ef.Fleet(Linear, data=(X, Y), evaluate=(X, Y), devices=1, classes=CLASSES, **SETTINGS).run(seed=3)
    assert (fleet.outcome.ended, fleet.outcome.updates) == ("complete", UPDATES)
    assert fleet.outcome.digest == sha256(result.theta.tobytes()).hexdigest()
    assert (fleet.loss, fleet.accuracy) == (result.loss, result.accuracy)

    text = (TOML + FLEET).format(folder=tmp_path)
    file = parse(text, "fleet.toml")
    of_file = await asyncio.to_thread(lambda: run_fleet(prepare(file), 3))
    assert of_file.digest == fleet.outcome.digest
