"""An emulated fleet in this program, and the curves of runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgeflock as ef
from edgeflock.server.findings import Diagnosis, RunStatus
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Finding
from tests.library.api.nets import LINEAR, Linear, sides

X, Y = sides(100)


def fleet(model: Any = Linear, **settings: Any) -> ef.Fleet:
    usual: dict[str, Any] = {"data": (X, Y), "devices": 4, "updates": 40, "evaluate_every": 20}
    return ef.Fleet(model, **{**usual, "coordination": {"learning_rate": 0.5}, **settings})


def test_a_seed_is_a_run_and_leaves_the_process_as_it_was() -> None:
    random = torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        reported: list[int] = []
        one = fleet().run(seed=1, on_evaluated=lambda evaluation: reported.append(evaluation.version))
        again, other = fleet().run(seed=1), fleet().run(seed=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.get_rng_state(), random)
    assert one.outcome.digest == again.outcome.digest != other.outcome.digest
    assert reported == [one.version for one in one.evaluations] == [20, 40]
    assert one.outcome.classes.keys() == {"laptop"}
    assert one.accuracy is not None
    assert one.accuracy > 0.7


def test_a_model_of_several_inputs(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    size, town = random.standard_normal((40, 2)).astype(np.float32), random.integers(0, 5, 40)
    arrays = {
        f"{name}_{split}{of}": values
        for split in ("train", "test")
        for name, of, values in (("x", ".size", size), ("x", ".town", town), ("y", "", size[:, :1]))
    }
    np.savez(tmp_path / "houses.npz", allow_pickle=False, **arrays)
    model = ef.Model("tests.shared.model.test_own_models:House", loss="mse")
    uri = f"npz:{tmp_path / 'houses.npz'}"
    run = fleet(model, data=uri, evaluate=uri, updates=20, coordination={"learning_rate": 0.1}).run()
    loss = run.evaluations[-1].loss
    assert loss is not None
    assert loss < 0.5 * float((size[:, :1] ** 2).mean())


def test_a_program_is_told_and_may_end_it() -> None:
    reported: list[Any] = []
    run = fleet().run(seed=1, stop=lambda one: one.version >= 20, on_update=reported.append)
    assert (run.outcome.ended, run.outcome.updates) == ("stopped", 20)
    assert [one.version for one in reported] == list(range(1, 21))
    assert {one.device for one in reported} == {f"laptop-{number}" for number in range(4)}
    assert all(one.samples == 10 and one.loss > 0 for one in reported)


HEARD: list[int] = []


def heard(news: Any) -> bool:
    HEARD.append(news.version)
    return bool(news.version >= 20)


def test_settings_name_functions_by_import_strings() -> None:
    HEARD.clear()
    run = fleet(
        stop="tests.library.api.test_fleet:heard", on_update="tests.library.api.test_fleet:heard"
    ).run(seed=1)
    assert (run.outcome.ended, run.outcome.updates) == ("stopped", 20)
    assert HEARD == [*range(1, 21), 20]


@pytest.mark.parametrize("mode", ["async", "rounds"])
@pytest.mark.parametrize("where", ["stop", "on_update", "on_evaluated"])
def test_what_a_function_raises_ends_it(where: str, mode: str) -> None:
    def fail(news: Any) -> None:
        raise ZeroDivisionError(f"at {news.version}")

    settings = {"coordination": {"learning_rate": 0.5, "mode": mode}}
    functions: dict[str, Any] = {where: fail}
    with pytest.raises(ZeroDivisionError, match="at 1$" if where == "on_update" else "at 20$"):
        fleet(**settings).run(**functions)


async def test_it_runs_where_an_event_loop_runs() -> None:
    assert fleet(updates=5).run().outcome.updates == 5


def test_a_fifth_is_held_out_if_nothing_else_is() -> None:
    prepared = fleet()._prepared
    held_out, *rest = datasets.deal(Dataset(X, Y), 5)
    assert prepared.test.x.tobytes() == held_out.x.tobytes()
    trained = np.sort(np.concatenate([share.x for share in prepared.shares]), axis=0)
    assert trained.tobytes() == np.sort(np.concatenate([part.x for part in rest]), axis=0).tobytes()


def test_classes_are_those_of_a_fleet_file() -> None:
    classes = {"pi": {"profile": "raspberry-pi-4", "share": 3}, "own": {"step_ms": 5}}
    outcome = fleet(classes=classes, updates=5).run().outcome
    assert {name: totals.devices for name, totals in outcome.classes.items()} == {"pi": 3, "own": 1}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"profile": "raspberry"}, r"edgeflock.Fleet: devices.raspberry.profile = 'raspberry': must be"),
    ({"updates": 0}, r"edgeflock.Fleet: the run has no end: set end.updates or fleet.seconds"),
    ({"seeds": [1]}, r"Fleet\(seeds=...\): say run\(seed\) for each"),
    ({"fleet": {}}, r"Fleet\(fleet=...\): settings of \[fleet\] go by their own names"),
    ({"devices": 101, "evaluate": (X, Y)}, r"fleet.devices = 101: there are only 100 samples"),
    ({"data": (X[:3], Y[:3])}, r"no fifth of 3 samples can be held out"),
    ({"model": LINEAR, "data": (X[:, :5], Y)}, r"does not fit fleet.data = '\(x, y\)'"),
]


@pytest.mark.parametrize(("settings", "says"), WRONG)
def test_what_cannot_be_is_named_with_its_remedy(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ef.ConfigError, match=says):
        fleet(**settings)


def test_curves_of_runs_are_a_figure() -> None:
    runs = [fleet(updates=40).run(seed) for seed in (0, 1)]
    figure = ef.plot(runs[0], other=runs[1], against="bytes")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["run 1", "other"]
    points = axes.lines[0].get_xydata()
    assert np.asarray(points).tolist() == [[e.ingress + e.egress, e.accuracy] for e in runs[0].evaluations]
    assert (axes.get_ylabel(), axes.get_xlabel()[:5]) == ("accuracy", "bytes")
    assert figure._repr_png_()[:4] == b"\x89PNG"


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ef.ConfigError, match=r"plot\(\): give it what Server.until or Fleet.run returned"):
        ef.plot()
    bites: Any = "bites"
    with pytest.raises(ef.ConfigError, match=r"against='bites'\): must be one of updates, bytes, time"):
        ef.plot(fleet(updates=5).run(), against=bites)


def test_metrics_of_a_fleet() -> None:
    run = fleet(metrics=["accuracy", "topk(k=2)"]).run(seed=1)
    for one in run.evaluations:
        assert one.metrics == {"accuracy": pytest.approx(one.accuracy), "topk(k=2)": 1.0}
    with pytest.raises(ef.ConfigError, match="'r2' does not fit"):
        fleet(metrics=["r2"])


@pytest.mark.slow
def test_a_sweep_keeps_a_run_a_seed(tmp_path: Path) -> None:
    data = tmp_path / "sides.npz"
    np.savez(data, x_train=X, y_train=Y, x_test=X, y_test=Y)
    of_files = fleet("tests.library.api.nets:Linear", data=f"npz:{data}", evaluate=f"npz:{data}")
    (kept,) = of_files.sweep(tmp_path / "runs", [3], workers=1)
    assert kept.end["digest"] == of_files.run(seed=3).outcome.digest
    written = (tmp_path / "runs" / "seed-3.jsonl").stat().st_mtime_ns
    (again,) = of_files.sweep(tmp_path / "runs", [3])
    assert again == kept
    assert (tmp_path / "runs" / "seed-3.jsonl").stat().st_mtime_ns == written


def test_other_processes_do_not_find_what_is_at_hand(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"objects of this program.* or run\(seed\) each"):
        fleet().sweep(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_program_is_told_once_of_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(picture: RunStatus, before: Diagnosis) -> Diagnosis:
        now = tuple(
            Finding("disagrees", "warning", one.name, picture.time, "", "")
            for one in picture.devices
            if one.averages is not None and one.averages.updates >= 10 and one.name == "pi-1"
        )
        return Diagnosis(now, began=() if before.findings else now)

    monkeypatch.setattr("edgeflock.devices.emulation.fleet.watching.diagnose", wrong)
    found: list[Finding] = []
    fleet(classes={"pi": {"step_ms": 200}}, updates=120).run(on_finding=found.append)
    assert [(one.kind, one.device) for one in found] == [("disagrees", "pi-1")]
