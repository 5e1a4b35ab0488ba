"""A fleet is its file and its seed: the same run comes out bit for bit, in one go or in pieces."""

import shutil
from collections.abc import Iterator
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import safetensors.torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.shared.data import datasets
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.frames import Evaluation
from tests.devices.emulation.fleets import CHURN, MIXED, ONE, Ran, fleet_of, run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a run keeps its journal until it is over."""
    return tmp_path / "run"


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture(scope="module")
def whole(scratch: Path) -> Ran:
    """MIXED in one go."""
    return run(fleet_of(MIXED), scratch / "whole")


def rows_of(ran: Ran) -> list[Evaluation]:
    """The evaluations without accuracies by class, which no journal holds."""
    return [row._replace(classes=()) for row in ran.rows]


def assert_equal(one: Ran, other: Ran) -> None:
    assert one.result == other.result
    assert rows_of(one) == rows_of(other)


# The same again


def test_the_same_seed_gives_the_same_run(whole: Ran, directory: Path) -> None:
    again = run(fleet_of(MIXED), directory)
    assert_equal(again, whole)
    first, second = ([astuple(one.push) for one in ran.server.arrivals] for ran in (again, whole))
    assert first == second
    assert again.server.traffic.sent == whole.server.traffic.sent


@pytest.mark.parametrize("toml", [ONE, MIXED], ids=["one device", "six devices"])
def test_another_seed_gives_another_run(toml: str, directory: Path) -> None:
    first, second = (run(fleet_of(toml), directory, seed=seed) for seed in (1, 2))
    assert first.result.digest != second.result.digest
    assert first.rows[0].loss != second.rows[0].loss
    assert (first.result.seed, second.result.seed) == (1, 2)


@pytest.mark.parametrize(
    "setting",
    ["compression.feedback=0.5", "local.steps=2", "compression.values=sign", "coordination.rule=tau"],
)
def test_what_is_set_reaches_the_devices_and_the_engine(setting: str, whole: Ran, directory: Path) -> None:
    changed = run(fleet_of(MIXED, setting), directory)
    assert changed.result.digest != whole.result.digest
    assert changed.result.updates == whole.result.updates


def test_the_average_is_evaluated_and_changes_nothing_else(whole: Ran, directory: Path) -> None:
    averaged = run(fleet_of(MIXED, "coordination.average=8"), directory)
    assert averaged.result == whole.result
    assert averaged.rows[-1].loss != whole.rows[-1].loss
    assert [row._replace(loss=0, accuracy=0, classes=()) for row in averaged.rows] == [
        row._replace(loss=0, accuracy=0, classes=()) for row in whole.rows
    ]


def test_without_kept_updates_the_run_is_the_same_and_leaves_nothing(whole: Ran, directory: Path) -> None:
    assert_equal(run(fleet_of(MIXED, "journal.keep_updates=false"), directory), whole)
    assert not directory.exists()


def test_rows_come_at_every_so_many_updates_and_at_the_end(directory: Path) -> None:
    ran = run(fleet_of(MIXED, "fleet.evaluate_every=15"), directory)
    assert [row.version for row in ran.rows] == [15, 30, 40]
    assert [row.time for row in ran.rows] == sorted(row.time for row in ran.rows)
    assert ran.rows[-1].ingress == ran.server.traffic.total.ingress


@pytest.mark.parametrize("average", ["0", "8"])
def test_a_row_is_the_model_on_all_held_out_data(average: str, directory: Path) -> None:
    file = fleet_of(MIXED, f"coordination.average={average}")
    ran = run(file, directory)
    test, theta = datasets.load("digits:", "test"), ran.server.engine.result()[1]
    loss, accuracy = FlatModule(file.model.module, file.model.loss).evaluate(theta, test.x, test.y)
    assert (ran.rows[-1].loss, ran.rows[-1].accuracy) == (loss, accuracy)
    digest = sha256(ran.server.engine.theta()[1].tobytes()).hexdigest()
    assert ran.result.digest == digest


def test_it_begins_with_the_weights_that_are_named(directory: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    file = fleet_of(ONE, "end.updates=1", "coordination.learning_rate=1e-12", f"model.weights={own}")
    flat = FlatModule(file.model.module, file.model.loss, 9)
    safetensors.torch.save_file(flat.module.state_dict(), own)
    theta = run(file, directory).server.engine.theta()[1]
    np.testing.assert_allclose(theta, flat.theta(), atol=1e-6)


def test_a_fleet_learns(directory: Path) -> None:
    ran = run(fleet_of(MIXED, "end.updates=60", "compression.select=0.2"), directory)
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
def test_streams_that_pause_stop_no_run(mode: tuple[str, ...], directory: Path) -> None:
    """Each device is somewhere else in its curve. The run goes on behind every pause, to its end."""
    streams = [f"devices.{kind}.rate=square:60..0/10s" for kind in ("quick", "slow")]
    ran = run(fleet_of(MIXED, "end.updates=0", "fleet.seconds=45", *streams, *mode), directory)
    assert ran.result.ended == "out of time"
    times = [row.time for row in ran.rows]
    assert max(np.diff(times)) < 10, "no longer than a pause and a half"
    assert times[-1] > 40


# In pieces


def test_a_run_leaves_its_folder_only_when_it_is_cut_short(directory: Path) -> None:
    run(fleet_of(MIXED), directory, cut=8)
    assert directory.exists()
    run(fleet_of(MIXED), directory)
    assert not directory.exists()


@pytest.mark.slow
@given(cuts=st.lists(st.integers(1, 36), min_size=1, max_size=3))
@settings(max_examples=10)
def test_interrupted_it_comes_to_the_same_and_computes_nothing_twice(
    cuts: list[int], whole: Ran, scratch: Path
) -> None:
    """Interrupted once, again, and again: also before it has come as far as the time before."""
    with TemporaryDirectory(dir=scratch) as path:
        pieces = [run(fleet_of(MIXED), Path(path) / "run", cut=cut) for cut in cuts]
        last = run(fleet_of(MIXED), Path(path) / "run")
    assert_equal(last, whole)
    known = 0
    for piece in pieces:
        made = piece.rows[-1].version
        assert rows_of(piece) == rows_of(whole)[: len(piece.rows)]
        # Each device is one gradient ahead of its last update.
        assert piece.gradients <= max(0, made - known) + 6
        known = max(known, made)
    assert last.gradients == whole.gradients - known
    assert last.evaluations == len(whole.rows) - known // 4


@pytest.mark.parametrize("cut", [1, 13, 39])
def test_killed_it_comes_to_the_same(cut: int, tmp_path: Path) -> None:
    """From what lies on the disk at this moment, but for the shared memory, which dies with the process."""
    directory, killed = tmp_path / "run", tmp_path / "killed"
    file = fleet_of(MIXED, "fleet.evaluate_every=1")
    whole = run(file, tmp_path / "whole")

    def kill() -> None:
        shutil.copytree(directory, killed, ignore=shutil.ignore_patterns("*-shm"))
        assert (killed / "journal.sqlite-wal").stat().st_size > 0

    run(file, directory, cut=cut, at_cut=kill)
    resumed = run(file, killed)
    assert_equal(resumed, whole)
    assert resumed.gradients == whole.gradients - cut


def test_killed_while_going_on(tmp_path: Path) -> None:
    directory, killed = tmp_path / "run", tmp_path / "killed"
    file = fleet_of(MIXED, "fleet.evaluate_every=1")
    whole = run(file, tmp_path / "whole")
    run(file, directory, cut=20)
    run(file, directory, cut=7, at_cut=lambda: shutil.copytree(directory, killed))
    resumed = run(file, killed)
    assert_equal(resumed, whole)
    assert resumed.gradients == whole.gradients - 20


SEVERAL = {
    "devices that leave and crash": CHURN,
    "a short window": ("coordination.window=2",),
    "running statistics": ("model.module=tests.devices.emulation.fleets:Normed",),
    "an average": ("coordination.average=4",),
    "a lossy downlink": ("downlink.mode=lossy",),
    "a lossy downlink of a fleet that leaves": ("downlink.mode=lossy", *CHURN),
    "whole gradients": ("compression.select=1",),
    "a cohort in turn": ("coordination.mode=cohort", "coordination.cohort=2", "coordination.cohort_rounds=2"),
    "an end by the clock": ("end.updates=0", "fleet.seconds=0.1"),
    "local steps": ("local.steps=3",),
    "a stream": ("devices.quick.rate=300",),
    "no device left": ("devices.quick.crash=0.9", "devices.slow.crash=0.9"),
    "divergence": ("model.module=edgeflock.client.zoo:DigitsCNN", "coordination.learning_rate=1e5"),
}


@pytest.mark.parametrize("changes", SEVERAL.values(), ids=SEVERAL.keys())
def test_whatever_the_fleet_interrupted_is_the_same(changes: tuple[str, ...], directory: Path) -> None:
    file = fleet_of(MIXED, "fleet.evaluate_every=1", *changes)
    whole = run(file, directory)
    middle = max(1, whole.rows[-1].version // 2)
    run(file, directory, cut=middle)
    run(file, directory, cut=max(1, middle // 2))
    resumed = run(file, directory)
    assert_equal(resumed, whole)
    assert resumed.gradients < whole.gradients


@pytest.mark.parametrize(
    "changes",
    [
        ("compression.feedback=0.9",),
        ("compression.threshold=0.4",),
        ("coordination.mode=rounds", *CHURN),
        ("coordination.mode=cohort", "coordination.cohort=2", *CHURN),
    ],
)
def test_where_devices_remember_it_begins_again(changes: tuple[str, ...], directory: Path) -> None:
    """What they remember is in no journal, nor what one that came back to its round sent anew: everything is
    computed again, so that it comes to the same.
    """
    file = fleet_of(MIXED, *changes)
    whole = run(file, directory)
    run(file, directory, cut=20)
    assert not directory.exists()
    again = run(file, directory)
    assert_equal(again, whole)
    assert again.gradients == whole.gradients


@pytest.mark.parametrize("seed", [0, 3, 4])
def test_a_step_abandoned_on_the_way_is_not_taken_for_its_repetition(seed: int, tmp_path: Path) -> None:
    """A lone device leaves while an update is under way and, back, makes another of the same number and base.

    Its line carries fifty bytes a second, and one of its two samples takes three bytes more than the other,
    so that an update may get through before the device leaves where the one of that time did not.
    """
    lit = np.zeros((2, 512), np.float32)
    lit[0, :20] = 1
    lit[1, np.random.default_rng(0).choice(512, 20, replace=False)] = 1
    data = tmp_path / "data.npz"
    labels = np.array([0, 1])
    np.savez(data, x_train=lit, y_train=labels, x_test=lit, y_test=labels)
    wide = [
        "model.module=tests.devices.emulation.fleets:Wide",
        f"model.data=npz:{data}",
        f"fleet.data=npz:{data}",
    ]
    small = ["fleet.samples=2", "local.batch=1", "compression.select=0.0391", "compression.values=sign"]
    leaving = ["devices.pi.uplink_mbps=0.0004", "devices.pi.session_s=0.7", "devices.pi.away_s=0.1"]
    file = fleet_of(ONE, *wide, *small, *leaving)
    whole = run(file, tmp_path / "run", seed=seed)
    run(file, tmp_path / "run", seed=seed, cut=19)
    assert_equal(run(file, tmp_path / "run", seed=seed), whole)


def test_what_goes_wrong_at_the_last_update_is_not_lost(directory: Path) -> None:
    """A disk that is full when the last row is written, for one: a run without its end is not complete."""
    ran = run(fleet_of(MIXED), directory, cut=40)
    assert ran.rows[-1].version == 40
    assert ran.outcome is None
