"""A fleet is its file and its seed: the same run comes out bit for bit."""

from dataclasses import astuple
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch

from edgeflock.shared.data import datasets
from edgeflock.shared.model.torch_module import FlatModule
from tests.devices.emulation.fleets import MIXED, ONE, Ran, fleet_of, run


@pytest.fixture(scope="module")
def whole() -> Ran:
    return run(fleet_of(MIXED))


def assert_equal(one: Ran, other: Ran) -> None:
    assert one.result == other.result
    assert one.rows == other.rows


# The same again


def test_the_same_seed_gives_the_same_run(whole: Ran) -> None:
    again = run(fleet_of(MIXED))
    assert_equal(again, whole)
    first, second = ([astuple(one.push) for one in ran.server.arrivals] for ran in (again, whole))
    assert first == second
    assert again.server.traffic.sent == whole.server.traffic.sent


@pytest.mark.parametrize("toml", [ONE, MIXED], ids=["one device", "six devices"])
def test_another_seed_gives_another_run(toml: str) -> None:
    first, second = (run(fleet_of(toml), seed=seed) for seed in (1, 2))
    assert first.result.digest != second.result.digest
    assert first.rows[0].loss != second.rows[0].loss
    assert (first.result.seed, second.result.seed) == (1, 2)


@pytest.mark.parametrize(
    "setting",
    ["compression.feedback=0.5", "local.steps=2", "compression.values=sign", "coordination.rule=tau"],
)
def test_what_is_set_reaches_the_devices_and_the_engine(setting: str, whole: Ran) -> None:
    changed = run(fleet_of(MIXED, setting))
    assert changed.result.digest != whole.result.digest
    assert changed.result.updates == whole.result.updates


def test_the_average_is_evaluated_and_changes_nothing_else(whole: Ran) -> None:
    averaged = run(fleet_of(MIXED, "coordination.average=8"))
    assert averaged.result == whole.result
    assert averaged.rows[-1].loss != whole.rows[-1].loss
    assert [row._replace(loss=0, accuracy=0, classes=()) for row in averaged.rows] == [
        row._replace(loss=0, accuracy=0, classes=()) for row in whole.rows
    ]


def test_without_kept_updates_the_run_is_the_same(whole: Ran) -> None:
    assert_equal(run(fleet_of(MIXED, "journal.keep_updates=false")), whole)


def test_rows_come_at_every_so_many_updates_and_at_the_end() -> None:
    ran = run(fleet_of(MIXED, "fleet.evaluate_every=15"))
    assert [row.version for row in ran.rows] == [15, 30, 40]
    assert [row.time for row in ran.rows] == sorted(row.time for row in ran.rows)
    assert ran.rows[-1].ingress == ran.server.traffic.total.ingress


@pytest.mark.parametrize("average", ["0", "8"])
def test_a_row_is_the_model_on_all_held_out_data(average: str) -> None:
    file = fleet_of(MIXED, f"coordination.average={average}")
    ran = run(file)
    test, theta = datasets.load("digits:", "test"), ran.server.engine.result()[1]
    loss, accuracy = FlatModule(file.model.module, file.model.loss).evaluate(theta, test.x, test.y)
    assert (ran.rows[-1].loss, ran.rows[-1].accuracy) == (loss, accuracy)
    digest = sha256(ran.server.engine.theta()[1].tobytes()).hexdigest()
    assert ran.result.digest == digest


def test_it_begins_with_the_weights_that_are_named(tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    file = fleet_of(ONE, "end.updates=1", "coordination.learning_rate=1e-12", f"model.weights={own}")
    flat = FlatModule(file.model.module, file.model.loss, 9)
    safetensors.torch.save_file(flat.module.state_dict(), own)
    theta = run(file).server.engine.theta()[1]
    np.testing.assert_allclose(theta, flat.theta(), atol=1e-6)


def test_a_fleet_learns() -> None:
    ran = run(fleet_of(MIXED, "end.updates=60", "compression.select=0.2"))
    first, last = ran.rows[0], ran.rows[-1]
    assert first.loss is not None
    assert last.loss is not None
    assert last.accuracy is not None
    assert last.loss < 0.9 * first.loss
    assert last.accuracy > 0.4


@pytest.mark.parametrize(
    "mode",
    [
        ("coordination.mode=rounds",),
        ("coordination.mode=rounds", "coordination.quorum=3"),
        ("coordination.mode=async",),
    ],
    ids=["rounds", "quorum", "async"],
)
def test_streams_that_pause_stop_no_run(mode: tuple[str, ...]) -> None:
    """Each device is somewhere else in its curve. The run goes on behind every pause, to its end."""
    streams = [f"devices.{kind}.rate=square:60..0/10s" for kind in ("quick", "slow")]
    ran = run(fleet_of(MIXED, "end.updates=0", "fleet.seconds=45", *streams, *mode))
    assert ran.result.ended == "out of time"
    times = [row.time for row in ran.rows]
    assert max(np.diff(times)) < 10, "no longer than a pause and a half"
    assert times[-1] > 40
