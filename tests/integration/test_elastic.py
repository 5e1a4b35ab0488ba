"""Elastic averaging over real sockets, under kills and restarts, and in emulated fleets."""

import asyncio
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession
from numpy.typing import NDArray
from rich.console import Console

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.training import LocalSteps, Worker, WorkerProgress
from edgeflock.client.training.elastic import Elastic
from edgeflock.client.training.trainer import Trainer
from edgeflock.client.transport import Link
from edgeflock.operations.status import print_status
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import Malformed, SessionRefused
from edgeflock.shared.model.chunks import chunks
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Welcome
from tests.devices.emulation.fleets import CHURN, MIXED, fleet_of, run
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.operator import ADMIN, operating
from tests.integration.test_rounds import link
from tests.server.pushes import copy_as_killed

ELASTIC = (
    "coordination.mode=elastic",
    "coordination.moving_rate=0.2",
    "coordination.chunk=20",
    "local.steps=4",
    "local.rate=0.1",
    "compression.select=1",
    "compression.values=f32",
    "model.loss=mse",
)


class Valley:
    """A backend whose loss is least at one point."""

    layout = LAYOUT

    def __init__(self, lowest: float) -> None:
        self._lowest = lowest

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        away = theta - np.float32(self._lowest)
        return Gradient(float(away @ away), away, np.zeros(0, np.float32))


async def at_once(function: Any, *arguments: Any) -> Any:
    await asyncio.sleep(0)
    return function(*arguments)


async def train(port: int, name: str, lowest: float) -> WorkerProgress:
    batches = Shuffled(Dataset(np.zeros((20, 1), np.float32), np.arange(20)), np.random.default_rng(0))

    async def make(welcome: Welcome) -> Trainer:
        return Trainer(Valley(lowest), batches, welcome)

    hello = Hello(PROTOCOL, name, b"", {})
    async with Link(f"http://127.0.0.1:{port}", None, hello, Random(0)) as line:
        return await Worker(line, make, batches, at_once).run()


async def train_all(hosted: Hosted) -> list[WorkerProgress]:
    """Three devices whose valleys lie around 4."""
    return await asyncio.gather(
        *(train(hosted.port, name, at) for name, at in (("a", 3), ("b", 4), ("c", 5)))
    )


def digest_of(directory: Path) -> bytes:
    journal = Journal(directory / "journal.sqlite")
    theta = replay(journal, LAYOUT).theta
    journal.close()
    return theta.tobytes()


async def test_the_centre_goes_where_the_devices_are_and_replays_to_the_same_bits(tmp_path: Path) -> None:
    async with hosting(tmp_path, *ELASTIC, "end.updates=420") as hosted:
        progress = await train_all(hosted)
        version, theta = hosted.engine.theta()
        assert version == 420 == sum(one.updates for one in progress)
        counted = [device.statistics.samples for device in hosted.registry.devices.values()]
        trained = [one.samples for one in progress]
        assert sum(trained) - 3 * 4 * 10 <= sum(counted) <= sum(trained), "but for the last period's"
        assert np.abs(theta - 4).max() < 0.5
    assert digest_of(tmp_path) == theta.tobytes()


@pytest.mark.parametrize(
    "settings",
    [
        ("compression.select=0.3",),
        ("compression.select=0.3", "compression.indices=grid", "compression.values=scale"),
        ("compression.select=0", "compression.selection=significance", "compression.values=int8"),
        ("compression.values=sign", "local.momentum=0.5"),
        ("coordination.chunk=0", "coordination.gate=asp"),
    ],
)
async def test_every_way_to_send_a_difference(tmp_path: Path, settings: tuple[str, ...]) -> None:
    async with hosting(tmp_path, *ELASTIC, "end.updates=60", *settings) as hosted:
        await train_all(hosted)
        theta = hosted.engine.theta()[1]
        assert np.isfinite(theta).all()
    assert digest_of(tmp_path) == theta.tobytes()


async def test_killed_and_restarted_it_goes_on_from_the_same_centre(tmp_path: Path) -> None:
    """Devices that come again begin from the centre; what was acknowledged is there once."""
    first, killed = tmp_path / "first", tmp_path / "killed"
    async with hosting(first, *ELASTIC, "end.updates=50") as hosted:
        await train_all(hosted)
        copy_as_killed(first, killed)
        theta = hosted.engine.theta()[1]
    async with hosting(killed, *ELASTIC, "end.updates=100") as hosted:
        assert hosted.engine.theta()[0] == 50
        assert hosted.engine.theta()[1].tobytes() == theta.tobytes()
        await train_all(hosted)
        assert hosted.engine.theta()[0] == 100
        theta = hosted.engine.theta()[1]
    assert digest_of(killed) == theta.tobytes()


async def test_parts_of_the_model_are_exact_and_no_longer_than_they_are(tmp_path: Path) -> None:
    async with hosting(tmp_path, *ELASTIC) as hosted, link(hosted.port, "a") as line:
        await line.join()
        whole = await line.pull(None)
        part = await line.pull(None, 0, 20, 40)
        assert (part.base, part.count, len(part.values)) == (None, 20, 80)
        assert part.values == whole.values[80:160]
        nothing = await line.pull(0, 0, 20, 40)
        assert (nothing.base, nothing.count, nothing.values) == (0, 0, b"")


async def test_alpha_is_no_learning_rate_that_operators_change(tmp_path: Path) -> None:
    """Nor is a learning rate that one chose before, in a run that did not average, taken for it."""
    rate = "coordination.learning_rate=0.2"
    async with hosting(tmp_path, rate, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        assert (await admin.post("/v1/learning_rate", {"value": 0.5}))[0] == 200
    settings = (*ELASTIC, "end.updates=30")
    async with hosting(tmp_path, *settings, admin_token=ADMIN) as hosted, operating(hosted.port) as admin:
        assert hosted.engine.parameters.regime.learning_rate == 0.2
        status, reported = await admin.post("/v1/learning_rate", {"value": 0.5})
        assert (status, reported["code"]) == (409, "no-learning-rate")
        assert hosted.engine.parameters.regime.learning_rate == 0.2
        await train_all(hosted)
        theta = hosted.engine.theta()[1]
    assert digest_of(tmp_path) == theta.tobytes()


async def test_whoever_watches_is_told_how_updates_apply(tmp_path: Path) -> None:
    async with hosting(tmp_path, *ELASTIC, "end.updates=30", "coordination.gate=asp") as hosted:
        await train_all(hosted)
        async with (
            ClientSession() as session,
            session.get(f"http://127.0.0.1:{hosted.port}/v1/status") as response,
        ):
            status = await response.json()
        keys = ("mode", "moving_rate", "chunk", "gate", "bound")
        assert {key: status["coordination"][key] for key in keys} == {
            "mode": "elastic", "moving_rate": 0.2, "chunk": 20, "gate": "asp", "bound": 4,
        }  # fmt: skip
        assert status["version"] == 30
        pushed = sum(device["updates"] for device in status["devices"])
        assert status["dense_bytes"] == 4 * LAYOUT.size * pushed // len(chunks(LAYOUT, 20))
        console = Console(record=True, width=200, file=StringIO())
        print_status(console, status)
        assert "elastic, moving rate 0.2, chunks of 20, asp of 4, select" in console.export_text()


@pytest.mark.parametrize(("start", "stop"), [(5, 5), (6, 5), (0, LAYOUT.size + 1), (5, 0)])
async def test_parts_that_are_none_are_refused(tmp_path: Path, start: int, stop: int) -> None:
    async with hosting(tmp_path, *ELASTIC) as hosted, link(hosted.port, "a") as line:
        await line.join()
        with pytest.raises(SessionRefused) as refusal:
            await line.pull(None, 0, start, stop)
        assert refusal.value.code == Malformed.code
        assert f"the model has no parameters {start} to {stop}, but {LAYOUT.size}" in str(refusal.value)


FLEET = (
    "coordination.mode=elastic",
    "coordination.rule=elastic",
    "coordination.moving_rate=0.15",
    "coordination.chunk=100",
    "local.steps=5",
    "end.updates=200",
)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), CHURN, ("compression.select=1", "compression.values=f32")])
def test_a_fleet_is_a_function_of_its_seed(settings: tuple[str, ...]) -> None:
    one, again = (run(fleet_of(MIXED, *FLEET, *settings)) for name in ("one", "again"))
    assert one.result.digest == again.result.digest
    assert (one.result.ended, one.result.updates) == ("complete", 200)
    assert one.rows[-1].loss is not None
    assert one.rows[0].loss is not None
    assert one.rows[-1].loss < one.rows[0].loss


def test_emulated_devices_descend_by_gradients_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a backend, which has the next one's gradient by the time that a step is over."""
    whose: dict[bytes, int] = {}
    descended: dict[int, set[int]] = {}
    gradient, descend = Trainer.gradient, Elastic.descend

    def computing(self: Trainer, *arguments: Any) -> LocalSteps:
        done = gradient(self, *arguments)
        whose[done.gradient.tobytes()] = id(self)
        return done

    def descending(self: Elastic, step: LocalSteps) -> None:
        descended.setdefault(id(self), set()).add(whose[step.gradient.tobytes()])
        descend(self, step)

    monkeypatch.setattr(Trainer, "gradient", computing)
    monkeypatch.setattr(Elastic, "descend", descending)
    run(fleet_of(MIXED, *FLEET, "end.updates=20"))
    assert sorted(len(trainers) for trainers in descended.values()) == [1] * 6


@pytest.mark.slow
def test_staggered_exchanges_do_not_hold_up_training() -> None:
    """On links that a whole model fills for as long as three steps take."""
    thin = [f"devices.{kind}.{way}link_mbps=0.8" for kind in ("quick", "slow") for way in ("up", "down")] + [
        "compression.select=1",
        "compression.values=f32",
        "fleet.seconds=3",
        "end.updates=0",
    ]
    at_once, staggered = (
        run(fleet_of(MIXED, *FLEET, *thin, f"coordination.chunk={chunk}")) for chunk in (0, 100)
    )
    trained = [sum(kind.samples for kind in one.result.classes.values()) for one in (at_once, staggered)]
    assert trained[1] > 1.2 * trained[0]
