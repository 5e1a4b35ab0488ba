"""`edgeflock init` and `edgeflock check`: from data to a project that is known to train."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from edgeflock.cli import project
from edgeflock.projects import checking
from edgeflock.projects.beginning import create_project
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse
from tests.library.command_line import edgeflock


def table(folder: Path, target: str = "state") -> str:
    """100 rows of three numbers, and what follows from them."""
    x = np.random.default_rng(0).normal(50, 20, (100, 3))
    y = np.where(x.sum(axis=1) > 150, "on", "off") if target == "state" else x.sum(axis=1)
    rows = [f"{','.join(f'{number:.3f}' for number in row)},{label}" for row, label in zip(x, y, strict=True)]
    (folder / "mine.csv").write_text("\n".join([f"a,b,c,{target}", *rows]) + "\n")
    return f"csv:mine.csv?label={target}&held=0.2"


@pytest.mark.slow
def test_from_a_table_to_a_checked_project(tmp_path: Path) -> None:
    begin = edgeflock("init", "it", "--data", table(tmp_path), cwd=tmp_path)
    assert begin.returncode == 0, begin.stderr
    assert "cd it && edgeflock check edgeflock.toml" in begin.stderr
    readme = (tmp_path / "it" / "README.md").read_text()
    assert readme.count("\n    edgeflock ") == 3
    assert "--data 'csv:../mine.csv?label=state&held=0.2'" in readme
    found = edgeflock("check", "edgeflock.toml", "--json", cwd=tmp_path / "it")
    assert found.returncode == 0, found.stderr
    reported = json.loads(found.stdout)
    assert (reported["held_out"], reported["training"], reported["labels"]) == (20, 80, ["off", "on"])
    assert (reported["trial"]["samples"], reported["trial"]["shape"]) == (32, "[3]")
    assert reported["parameters"] == 3 * 64 + 64 + 64 * 64 + 64 + 64 * 2 + 2
    assert 0 < reported["update"] < 4 * reported["parameters"]
    assert reported["memory"] > 4 * reported["parameters"]
    assert reported["advice"] == []
    again = edgeflock("init", "it", cwd=tmp_path)
    assert (again.returncode, "is there already" in again.stderr) == (2, True)


@pytest.mark.slow
def test_a_project_without_data_makes_some_up(tmp_path: Path) -> None:
    assert edgeflock("init", cwd=tmp_path).returncode == 0
    done = edgeflock("check", "--set", "compression.select=0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1,000 samples to evaluate on, 1,000 to train on, classes left, right" in done.stdout
    assert "advice  so small a model trains faster with all of its gradient" in done.stdout


@pytest.mark.parametrize("key", ["model.data", "client.data"])
def test_missing_data_are_told_before_torch_is_imported(tmp_path: Path, key: str) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')")
    command = [sys.executable, "-m", "edgeflock", "check", "--set", f"{key}=csv:gone.csv?label=c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "data 'csv:gone.csv': there is no such file" in done.stderr


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("model.module=nowhere:Net", 2, "model.module 'nowhere:Net'"),
        ("model.data=csv:mine.csv?label=c", 2, "model:Model cannot train on inputs [4]"),
        ("model.data=csv:mine.csv?label=state&x=a,b", 2, "model:Model cannot train on inputs [2]"),
        ("model.data=", 2, "model.data = '': nothing says what samples look like; name held-out data"),
        (
            "client.data=csv:others.csv?label=state",
            2,
            "line 3: the label is 'broken', and the run's classes are",
        ),
    ],
)
def test_what_cannot_work_is_told(tmp_path: Path, change: str, code: int, message: str) -> None:
    create_project(tmp_path, "").write()
    uri = table(tmp_path)
    (tmp_path / "others.csv").write_text("a,b,c,state\n1,2,3,on\n1,2,3,broken\n")
    (tmp_path / "model.py").write_text((tmp_path / "model.py").read_text().replace("Linear(8", "Linear(3"))
    settings = ("--set", f"model.data={uri}", "--set", f"client.data={uri}", "--set", change)
    done = edgeflock("check", "edgeflock.toml", *settings, cwd=tmp_path)
    assert (done.returncode, message in done.stderr, done.stdout) == (code, True, ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", ["images", "numbers", "classes"])
def test_the_model_takes_the_data(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    uri = table(tmp_path, "sum")
    if kind == "images":
        image = pytest.importorskip("PIL.Image")
        for name in ("cat", "dog", "owl"):
            (tmp_path / "zoo" / name).mkdir(parents=True)
            image.new("RGB", (9, 9)).save(tmp_path / "zoo" / name / "1.png")
        uri = "images:zoo?size=12"
    elif kind == "classes":
        np.savez("mine.npz", x_test=np.zeros((5, 7), np.float32), y_test=np.arange(5))
        uri = "npz:mine.npz"
    project = create_project(tmp_path / "it", uri)
    settings = parse(project.files["edgeflock.toml"])
    made: dict[str, type[torch.nn.Module]] = {}
    exec(project.files["model.py"], made)
    monkeypatch.chdir(project.folder.parent)
    sample = datasets.open_stored(uri, "test")
    output = made["Model"]()(torch.from_numpy(sample.x[:2]))
    assert tuple(output.shape) == {"images": (2, 3), "numbers": (2,), "classes": (2, 5)}[kind]
    assert settings.model.loss == ("mse" if kind == "numbers" else "cross_entropy")
    assert settings.model.data.partition(":")[2].startswith("../")


def test_samples_without_a_ready_made_beginning(tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", x_test=np.zeros((5, 7, 2), np.float32), y_test=np.arange(5))
    with pytest.raises(ConfigError, match=r"samples have the shape \[7, 2\], .* begin without --data"):
        create_project(tmp_path, f"npz:{tmp_path}/odd.npz")


@pytest.mark.slow
def test_a_file_that_is_held_out_is_no_devices(tmp_path: Path) -> None:
    uri = table(tmp_path, "sum").removesuffix("&held=0.2")
    begin = edgeflock("init", "--data", uri, cwd=tmp_path)
    assert begin.returncode == 0, begin.stderr
    assert f"{uri} is held out, for the server to evaluate on. Devices train on other rows" in begin.stderr
    settings = (tmp_path / "edgeflock.toml").read_text()
    assert settings.count("mine.csv") == 1
    assert parse(settings).model.metrics == ["mae", "rmse"]
    assert "mine.csv" not in (tmp_path / "README.md").read_text()
    found = edgeflock("check", "--data", uri, cwd=tmp_path)
    assert "100 samples to evaluate on, and the same ones to train on" in found.stdout, found.stderr
    assert "advice  client.data has about 100 of the held-out samples" in found.stdout
    part = f"{uri}&held=0.2"
    apart = edgeflock("check", "--set", f"model.data={part}", "--data", part, cwd=tmp_path)
    assert "20 samples to evaluate on, 80 to train on" in apart.stdout, apart.stderr
    assert "held-out" not in apart.stdout


@pytest.mark.slow
def test_targets_that_are_not_scaled_are_told(tmp_path: Path) -> None:
    uri = table(tmp_path, "sum")
    assert edgeflock("init", "--data", uri, cwd=tmp_path).returncode == 0
    found = edgeflock("check", "--set", f"model.data={uri}&scale=none", cwd=tmp_path)
    assert "models learn best of about 0 and 1; scale the targets" in found.stdout, found.stderr
    assert "edgeflock rollback VERSION" in found.stdout
    assert "targets" not in edgeflock("check", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_learning_rate_is_proposed_and_written(tmp_path: Path) -> None:
    begin = edgeflock("init", "--data", table(tmp_path), cwd=tmp_path)
    assert begin.returncode == 0, begin.stderr
    with open(tmp_path / "edgeflock.toml", "a") as file:
        file.write("[coordination]\nlearning_rate = 0.05\n")
    before = (tmp_path / "edgeflock.toml").read_text()
    found = edgeflock("check", "--json", "--write", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    rate = json.loads(found.stdout)["rate"]
    assert rate["key"] == "coordination.learning_rate"
    after = (tmp_path / "edgeflock.toml").read_text()
    assert after == before.replace("learning_rate = 0.05", f"learning_rate = {rate['proposed']:g}")
    assert parse(after).coordination.learning_rate == rate["proposed"]
    again = edgeflock("check", "--set", "coordination.learning_rate=1000", cwd=tmp_path)
    assert f"rate    coordination.learning_rate = {rate['proposed']:g} is proposed" in again.stdout
    assert "advice  coordination.learning_rate = 1000 is beyond" in again.stdout, again.stdout


@pytest.mark.slow
def test_the_optimizer_that_a_rate_is_of_is_written_too(tmp_path: Path) -> None:
    assert edgeflock("init", "--data", table(tmp_path), cwd=tmp_path).returncode == 0
    file = tmp_path / "edgeflock.toml"
    before = parse(file.read_text())
    assert before.local.optimizer == "adafactor"
    found = edgeflock("check", "--json", "--write", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    after = parse(file.read_text())
    assert after.coordination.learning_rate == json.loads(found.stdout)["rate"]["proposed"]
    assert after.local.optimizer == "adafactor"


def test_without_client_data_only_the_held_out_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default, digits, needs a package that a project with data of its own may lack."""
    seen: list[str] = []
    monkeypatch.setattr(datasets, "read", lambda uri, split: seen.append(split))
    monkeypatch.setattr(checking, "check_project", lambda *_, **__: SimpleNamespace(lines=lambda: ()))
    (tmp_path / "some.toml").write_text('[model]\ndata = "csv:some.csv?label=y"\n')
    project.check(tmp_path / "some.toml")
    assert seen == ["test"]
