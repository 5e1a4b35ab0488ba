"""A run reads samples as it did when it began: its units are in the journal."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from edgeflock.server.hosting.run import open_run
from edgeflock.server.ledger import claim_run
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.settings.config import Config, parse

TABLE = "warm,watts\n1,10.5\n3,20\n5,60\n"
MODULE = "tests.server.hosting.test_described:Line"


def Line() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 1), nn.Flatten(0))


def settings(tmp_path: Path, *more: str) -> Config:
    data = f"csv:{tmp_path}/held_out.csv?label=watts"
    named = [
        f"server.directory={tmp_path}/run",
        f"model.module={MODULE}",
        "model.loss=mse",
        f"model.data={data}",
    ]
    return parse(overrides=[*named, "model.metrics=mae,rmse", *more])


def test_targets_are_scaled_and_metrics_are_not(tmp_path: Path) -> None:
    (tmp_path / "held_out.csv").write_text(TABLE)
    with open_run(settings(tmp_path)) as hosted:
        assert hosted.description is not None
        mean, deviation = hosted.description.target
        assert mean == pytest.approx(90.5 / 3)
        assert hosted.model.evaluate is not None
        theta = hosted.engine.theta()[1] * 0
        loss, accuracy, found, _ = hosted.model.evaluate(theta)
        # A model that always says the mean: the loss is the variance of what was scaled, 1.
        assert loss == pytest.approx(1, rel=1e-5)
        assert accuracy is None
        assert found["rmse"] == pytest.approx(deviation, rel=1e-5)
        apart = [abs(10.5 - mean), abs(20 - mean), abs(60 - mean)]
        assert found["mae"] == pytest.approx(sum(apart) / 3, rel=1e-5)


def test_the_units_of_a_run_are_those_it_began_with(tmp_path: Path) -> None:
    (tmp_path / "held_out.csv").write_text(TABLE)
    with open_run(settings(tmp_path)) as hosted:
        began = hosted.description
    (tmp_path / "held_out.csv").write_text(TABLE + "9000,9000\n")
    with open_run(settings(tmp_path)) as hosted:
        assert hosted.description == began
        assert hosted.held_out is not None
        assert hosted.held_out.rows == 4


def test_a_run_of_an_older_journal_goes_on_with_targets_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "held_out.csv").write_text(TABLE)
    with open_run(settings(tmp_path)) as hosted:
        began = hosted.description
    assert began is not None
    with closing(sqlite3.connect(tmp_path / "run" / "journal.sqlite")) as db, db:
        ((kept,),) = db.execute("SELECT data FROM meta").fetchall()
        assert kept.startswith('[["warm"]')
    older = tmp_path / "older"
    older.mkdir()
    flat = FlatModule(MODULE, "mse")
    config = settings(tmp_path, f"server.directory={older}")
    with claim_run(older, "server.directory", flat.layout, flat.theta(), config):
        pass  # as a version did that knew nothing of it
    with open_run(config) as hosted:
        assert hosted.description == began._replace(target=())
        assert hosted.model.targets is not None
        assert hosted.model.targets.problem


@pytest.mark.parametrize("loss", ["huber(delta=0.5)", "l1"])
def test_which_losses_have_scaled_targets(tmp_path: Path, loss: str) -> None:
    (tmp_path / "held_out.csv").write_text(TABLE)
    with open_run(settings(tmp_path, f"model.loss={loss}")) as hosted:
        assert hosted.description is not None
        assert hosted.description.target


def test_truths_are_no_numbers_to_scale(tmp_path: Path) -> None:
    (tmp_path / "held_out.csv").write_text("warm,watts\n1,0.0\n3,1.0\n")
    data = f"csv:{tmp_path}/held_out.csv?label=watts&targets=numbers"
    more = (f"model.data={data}", "model.loss=bce", "model.metrics=[]")
    with open_run(settings(tmp_path, *more)) as hosted:
        assert hosted.description is not None
        assert hosted.description.target == ()
        assert hosted.model.targets is None


def arrays(tmp_path: Path, times: float) -> str:
    x = np.array([[1], [3], [5]], np.float32)
    np.savez(tmp_path / "held_out.npz", x_test=x, y_test=np.float32(times) * x.ravel())
    return f"model.data=npz:{tmp_path}/held_out.npz"


def test_targets_of_arrays_that_are_far_are_scaled_and_metrics_are_not(tmp_path: Path) -> None:
    with open_run(settings(tmp_path, arrays(tmp_path, 100))) as hosted:
        assert hosted.description is not None
        assert hosted.description.target == pytest.approx((300, np.sqrt(80000 / 3)))
        assert hosted.description.means == ()
        assert hosted.model.targets is None
        assert hosted.model.evaluate is not None
        loss, _, found, _ = hosted.model.evaluate(hosted.engine.theta()[1] * 0)
        assert loss == pytest.approx(1, rel=1e-5)
        assert found["mae"] == pytest.approx(400 / 3, rel=1e-5)


def test_targets_of_arrays_that_are_near_stay(tmp_path: Path) -> None:
    with open_run(settings(tmp_path, arrays(tmp_path, 0.2))) as hosted:
        assert hosted.description is None
        assert hosted.model.targets is not None
        assert not hosted.model.targets.problem


def test_an_older_run_on_arrays_goes_on_with_targets_as_they_were(tmp_path: Path) -> None:
    config = settings(tmp_path, arrays(tmp_path, 100))
    flat = FlatModule(MODULE, "mse")
    (tmp_path / "run").mkdir()
    with claim_run(tmp_path / "run", "server.directory", flat.layout, flat.theta(), config):
        pass  # as a version did that scaled none
    for _ in range(2):
        with open_run(config) as hosted:
            assert hosted.description is None or hosted.description.target == ()
            assert hosted.model.targets is not None
            assert hosted.model.targets.problem
