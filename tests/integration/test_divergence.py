"""Devices that would break the model, over real sockets; one that breaks all the same, and goes back."""

import asyncio
import json
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.typing import NDArray

from edgeflock.operations.status import roll_back
from edgeflock.server.app import create_app, listen
from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.hosting.run import HostedRun, open_run
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Model, Pull, Receipt, Record, Refusal, Update
from edgeflock.shared.settings.config import Config, parse
from tests.hosting import store_token
from tests.integration.foreign_client import BINARY, Device, joined
from tests.integration.operator import ADMIN, operating
from tests.library.command_line import edgeflock

STEPS = 160
MODES = {
    "async": ("coordination.mode=async", "downlink.mode=lossy", "coordination.average=8"),
    "rounds": ("coordination.mode=rounds", "coordination.quorum=1", "downlink.mode=exact"),
}


def config_of(directory: Path, *settings: str) -> Config:
    terms = (
        f"server.directory={directory}",
        "server.open=true",
        "evaluation.every=3600",
        "model.data=digits",
        "coordination.learning_rate=0.3",
    )
    return parse(overrides=[*terms, *settings])


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Mode -> the directory of a run of the digits that knows most of them, by a device, `honest`."""
    directories = {}
    data = datasets.load("digits", "train")
    for mode, settings in MODES.items():
        directories[mode] = directory = tmp_path_factory.mktemp(mode)
        config = config_of(directory, *settings)
        flat, random = FlatModule(config.model.module, config.model.loss, config.model.seed), default_rng(0)
        with open_run(config) as hosted:
            engine, device = hosted.engine, hosted.engine.device_id("honest")
            for sequence in range(1, STEPS + 1):
                batch = random.choice(len(data.y), 128, replace=False)
                gradient = flat.gradient(engine.theta()[1], data.x[batch], data.y[batch])[1]
                update = dense(sequence, sequence - 1, gradient)
                engine.commit([Push(device, 0.0, update, wire.encode(update))])
            assert engine.parameters.version == STEPS
    return directories


def dense(sequence: int, base: int, gradient: NDArray[np.float32]) -> Update:
    octets = gradient.astype("<f4").tobytes()
    f32 = values.CODINGS["f32"].mode
    return Update(sequence, base, sparse.DENSE, f32, gradient.size, b"", octets, 1.0, 128, False)


@asynccontextmanager
async def served(config: Config, hosted: HostedRun) -> AsyncIterator[int]:
    async with listen(create_app(config, hosted), "127.0.0.1", 0) as port:
        store_token(hosted.register, ADMIN, "admin")
        yield port


def accuracy(hosted: HostedRun) -> float:
    assert hosted.model.evaluate is not None
    found = hosted.model.evaluate(hosted.engine.result()[1])[1]
    assert found is not None
    return found


def attack(sequence: int, value: float, size: int, *, samples: int = 10, base: int = STEPS) -> Update:
    """Every eighth parameter by `value`."""
    where = np.arange(0, size, 8)
    return sparse_update(sequence, base, where, value, samples)


def sparse_update(
    sequence: int, base: int, where: NDArray[np.int64], value: float, samples: int = 10
) -> Update:
    octets, f32 = np.full(where.size, value, "<f4").tobytes(), values.CODINGS["f32"].mode
    indices = where.astype("<u4").tobytes()
    return Update(sequence, base, sparse.RAW, f32, where.size, indices, octets, 0.5, samples, False)


async def ask(device: Device, record: Record) -> Record:
    device.send(wire.encode(record))
    opcode, payload = await device.receive()
    assert opcode == BINARY, payload
    return wire.decode(payload)


ATTACKS = {"three of the largest number": (3.4e38, 10), "as many samples as may be": (1e35, 1 << 16)}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ATTACKS)
async def test_one_device_does_not_destroy_the_model(
    tmp_path: Path, knowing: dict[str, Path], mode: str, kind: str
) -> None:
    """It is told so twice and then sent away; others go on."""
    value, samples = ATTACKS[kind]
    shutil.copytree(knowing[mode], tmp_path, dirs_exist_ok=True)
    config = config_of(tmp_path, *MODES[mode])
    with open_run(config) as hosted:
        before, theta = accuracy(hosted), hosted.engine.theta()[1].tobytes()
        assert before > 0.6
        async with served(config, hosted) as port:
            async with joined(port, "hostile") as (device, _):
                size = hosted.engine.layout.size
                for _ in range(2):
                    answer = await ask(device, attack(1, value, size, samples=samples))
                    assert isinstance(answer, Refusal)
                    assert (answer.code, answer.sequence) == ("step-too-large", 1)
                    assert "limits.parameter" in answer.detail
                answer = await ask(device, attack(1, value, size, samples=samples))
                assert isinstance(answer, Refusal)
                assert answer.code == "too-many-refused"
                assert "3 updates in a row would have broken the model" in answer.detail
                assert await device.closed() == (4422, "too-many-refused")
            assert hosted.engine.theta()[1].tobytes() == theta
            assert accuracy(hosted) == before
            async with joined(port, "honest") as (device, welcome):
                assert await small_step(device, STEPS + 1, STEPS) == Receipt(STEPS + 1, STEPS + 1, None)


async def small_step(device: Device, sequence: int, base: int) -> Record:
    """One parameter, a little."""
    return await ask(device, sparse_update(sequence, base, np.array([3]), 1e-3))


async def status_of(port: int) -> dict[str, object]:
    async with operating(port) as operator:
        return dict(json.loads((await operator.get("/v1/status"))[1]))


async def state(port: int, wanted: str) -> dict[str, object]:
    while (found := await status_of(port))["state"] != wanted:
        await asyncio.sleep(0.05)
    return found


def evaluated(directory: Path) -> int:
    """The version of the last evaluation in the journal."""
    with closing(sqlite3.connect(directory / "journal.sqlite")) as journal:
        return int(journal.execute("SELECT max(version) FROM evaluations").fetchone()[0])


@pytest.mark.parametrize("mode", MODES)
async def test_a_model_that_was_broken_within_the_bound(
    tmp_path: Path, knowing: dict[str, Path], mode: str
) -> None:
    """The next evaluation notices; nothing is taken until an operator goes back, also after a restart."""
    shutil.copytree(knowing[mode], tmp_path, dirs_exist_ok=True)
    config = config_of(tmp_path, *MODES[mode], "evaluation.every=0.1", "evaluation.recover=false")
    with open_run(config) as hosted:
        before, theta = accuracy(hosted), hosted.engine.theta()[1].tobytes()
        async with served(config, hosted) as port:
            size = hosted.engine.layout.size
            while (await status_of(port))["evaluation"] is None:
                await asyncio.sleep(0.05)
            async with joined(port, "hostile") as (device, _):
                made = 0
                for sequence in range(1, 41):  # until the average has followed
                    value, base = -100_000.0 if sequence % 2 else 90_000.0, STEPS + sequence - 1
                    answer = await ask(device, attack(sequence, value, size, base=base))
                    if isinstance(answer, Refusal):
                        break
                    made = sequence
            await state(port, "diverged")
            while evaluated(tmp_path) < hosted.engine.published.version:  # which may tell it anew
                await asyncio.sleep(0.05)
            found = await status_of(port)
            why = str(found["diverged"])
            assert f"until an operator goes back: edgeflock rollback {STEPS}" in why
            assert "of 'hostile', which made version" in why
            assert made
    with open_run(config) as hosted:
        async with served(config, hosted) as port:
            version = hosted.engine.published.version
            assert (await status_of(port))["diverged"] == why
            async with joined(port, "honest") as (device, _):
                model = await ask(device, Pull(None))
                assert isinstance(model, Model)
                assert model.version == version
                answer = await small_step(device, STEPS + 1, version)
                assert isinstance(answer, Refusal)
                assert (answer.code, answer.sequence) == ("run-diverged", None)
                # Which version was found first, a later evaluation may have told anew.
                after = f"until an operator goes back: edgeflock rollback {STEPS}"
                assert re.match(rf"the model of version \d+ has diverged .* {after}$", answer.detail)
                assert await device.closed() == (4424, "run-diverged")
            with pytest.raises(EdgeflockError, match=f"the run has versions 0 to {version}"):
                await roll_back(f"http://127.0.0.1:{port}", ADMIN, 10_000)
            done = await roll_back(f"http://127.0.0.1:{port}", ADMIN, STEPS)
            assert done == {"of": STEPS, "version": version + 1}
            assert hosted.engine.theta()[1].tobytes() == theta
            assert accuracy(hosted) == before
            assert (await status_of(port))["state"] == "training"
            async with joined(port, "honest") as (device, _):
                answer = await small_step(device, STEPS + 1, version)
                assert isinstance(answer, Refusal)
                assert answer.code == "base-expired"
                answer = await small_step(device, STEPS + 1, version + 1)
                assert answer == Receipt(STEPS + 1, version + 2, None)


@pytest.mark.slow
async def test_the_command(tmp_path: Path) -> None:
    config = config_of(tmp_path, *MODES["async"])
    with open_run(config) as hosted:
        async with served(config, hosted) as port:
            url, secret = f"http://127.0.0.1:{port}", tmp_path / "admin-token"
            line = ("rollback", "0", url, "--token-file", str(secret))
            done = await asyncio.to_thread(edgeflock, *line)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout == "The model is that of version 0 again, as version 1.\n"
            wrong = await asyncio.to_thread(edgeflock, "rollback", "7", *line[2:])
            assert wrong.returncode == 1
            assert wrong.stderr == "edgeflock: version 7: the run has versions 0 to 1\n"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "bad-request"),
        ({"version": "3"}, 400, "bad-request"),
        ({"version": True}, 400, "bad-request"),
        ({"version": 1 << 200}, 409, "no-such-version"),
    ],
)
async def test_what_cannot_be_gone_back_to(tmp_path: Path, body: object, status: int, code: str) -> None:
    config = config_of(tmp_path)
    with open_run(config) as hosted:
        async with served(config, hosted) as port, operating(port) as admin, operating(port, "") as device:
            answered, answer = await admin.post("/v1/rollback", body)
            assert (answered, answer["code"]) == (status, code)
            assert (await device.post("/v1/rollback", {"version": 0}))[0] == 403
            assert hosted.engine.published.version == 0
