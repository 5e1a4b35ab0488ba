"""Experiment trackers: jsonl and TensorBoard for real, MLflow and W&B by stand-ins of the calls they get."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.monitoring.trackers import KINDS, RunInfo, Trackers, check
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import parse

EVALUATIONS = [
    Evaluation(0, 1000.5, 2.5, 0.125, 10, 20, {"topk(k=3)": 0.25, "f1": None}, ((3, 4), (0, 4))),
    Evaluation(7, 1002.5, None, None, 30, 40),
]


def write(directory: Path, *names: str, failed: list[str] | None = None) -> None:
    """Two lives of a server."""
    reported: list[str] = [] if failed is None else failed
    for evaluation in EVALUATIONS:
        trackers = Trackers(names, RunInfo("abc123", directory, {"model.seed": 7}), reported.append)
        trackers.write(evaluation)
        trackers.close()
    assert failed is not None or not reported, reported


def test_jsonl(tmp_path: Path) -> None:
    write(tmp_path, "jsonl")
    lines = [json.loads(line) for line in (tmp_path / "evaluations.jsonl").read_text().splitlines()]
    assert lines == [
        {
            "run": "abc123",
            "version": 0,
            "time": 1000.5,
            "loss": 2.5,
            "accuracy": 0.125,
            "ingress": 10,
            "egress": 20,
            "metrics": {"topk(k=3)": 0.25, "f1": None},
            "classes": [[3, 4], [0, 4]],
        },
        {
            "run": "abc123",
            "version": 7,
            "time": 1002.5,
            "loss": None,
            "accuracy": None,
            "ingress": 30,
            "egress": 40,
            "metrics": {},
            "classes": [],
        },
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    scalars = {
        tag: [(e.step, e.wall_time, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert scalars == {
        "topk_k_3": [(0, 1000.5, 0.25)],
        "loss": [(0, 1000.5, 2.5)],
        "accuracy": [(0, 1000.5, 0.125)],
        "ingress": [(0, 1000.5, 10), (7, 1002.5, 30)],
        "egress": [(0, 1000.5, 20), (7, 1002.5, 40)],
    }


class Recorder(ModuleType):
    """A module that takes note of how its functions are called."""

    def __init__(self, name: str, **results: Any) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.results = results

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments, options))
            return self.results.get(name, self)

        return call


class Begun:
    class info:
        run_id = "made up by MLflow"


def test_mlflow_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Recorder("mlflow", start_run=Begun)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write(tmp_path, "mlflow")
    at = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert mlflow.calls == [
        ("set_tracking_uri", (at,), {}),
        ("set_experiment", ("edgeflock",), {}),
        ("start_run", (), {"run_name": "abc123"}),
        ("log_params", ({"model.seed": 7},), {}),
        (
            "log_metrics",
            ({"topk_k_3": 0.25, "loss": 2.5, "accuracy": 0.125, "ingress": 10, "egress": 20},),
            {"step": 0, "timestamp": 1000500},
        ),
        ("end_run", (), {}),
        ("set_tracking_uri", (at,), {}),
        ("start_run", (), {"run_id": "made up by MLflow"}),
        ("log_metrics", ({"ingress": 30, "egress": 40},), {"step": 7, "timestamp": 1002500}),
        ("end_run", (), {}),
    ]


def test_wandb_goes_on_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Recorder("wandb")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    write(tmp_path, "wandb")
    begin = {
        "project": "edgeflock",
        "id": "abc123",
        "resume": "allow",
        "dir": tmp_path,
        "config": {"model.seed": 7},
    }
    assert wandb.calls == [
        ("init", (), begin),
        (
            "log",
            ({"topk_k_3": 0.25, "loss": 2.5, "accuracy": 0.125, "ingress": 10, "egress": 20},),
            {"step": 0},
        ),
        ("finish", (), {}),
        ("init", (), begin),
        ("log", ({"ingress": 30, "egress": 40},), {"step": 7}),
        ("finish", (), {}),
    ]


def test_one_that_fails_is_told_of_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ModuleType):
        def init(self, **_: Any) -> None:
            raise OSError("no network")

    monkeypatch.setitem(sys.modules, "wandb", Broken("wandb"))
    reported: list[str] = []
    trackers = Trackers(["wandb", "jsonl", "jsonl"], RunInfo("abc123", tmp_path, {}), reported.append)
    for evaluation in EVALUATIONS:
        trackers.write(evaluation)
    trackers.close()
    assert reported == ["the tracker wandb failed and is given up: no network"]
    assert len((tmp_path / "evaluations.jsonl").read_text().splitlines()) == 2


def test_one_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.monitoring.trackers.find_spec", lambda module: None)
    for name in KINDS:
        with pytest.raises(ConfigError, match=f"evaluation.trackers names '{name}'.*pip install"):
            check([name])


def test_every_name_of_the_setting_is_one() -> None:
    names = ", ".join(KINDS)
    assert parse(overrides=[f"evaluation.trackers={names}"], tables=CHOICES).evaluation.trackers == list(
        KINDS
    )
    assert parse(environ={"EDGEFLOCK_EVALUATION__TRACKERS": ""}).evaluation.trackers == []
    assert parse('[evaluation]\ntrackers = ["jsonl"]').evaluation.trackers == ["jsonl"]
    with pytest.raises(ConfigError, match=r"evaluation.trackers = 'jsonl,paper'"):
        parse(overrides=["evaluation.trackers=jsonl,paper"], tables=CHOICES)
    with pytest.raises(ConfigError, match=r"evaluation.trackers names 'paper', which is none of jsonl, "):
        check(["jsonl", "paper"])
