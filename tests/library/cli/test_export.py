"""`edgeflock export`: two files that say what they are, or a reason and an exit code."""

import json
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from edgeflock.cli.model import export
from edgeflock.server.training_graph.export import ExportedGraphs
from edgeflock.server.training_graph.gradient_check import session_for
from edgeflock.shared.errors import ConfigError
from tests.library.command_line import edgeflock


@pytest.mark.slow
def test_it_writes_both_graphs_and_prints_json(tmp_path: Path) -> None:
    done = edgeflock("export", "tests.library.cli.test_export:talking", "-o", "a/b", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["model"], printed["loss"]) == (
        "tests.library.cli.test_export:talking",
        "cross_entropy",
    )
    assert [entry["path"] for entry in printed["graphs"]] == ["a/b/step.onnx", "a/b/evaluation.onnx"]
    for entry in printed["graphs"]:
        octets = (tmp_path / entry["path"]).read_bytes()
        assert entry["bytes"] == len(octets)
        assert entry["sha256"] == sha256(octets).hexdigest()
        assert "loss" in [output.name for output in session_for(octets).get_outputs()]
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["evaluation.onnx", "step.onnx"]


def talking() -> object:
    """A user's module, which prints, for the digits."""
    from torch import nn

    print("hello")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


DENSE, ENTROPY = "tests.server.training_graph.models:dense", "cross_entropy"

WRONG = {
    "no module": ("nowhere:Net", "digits:", ENTROPY, ["nowhere:Net"]),
    "not a path": ("nowhere", "digits:", ENTROPY, ["nowhere", "package.module:Name"]),
    "no data": (DENSE, "npz:gone.npz", ENTROPY, ["gone.npz", "no such file"]),
    "data that do not fit": (DENSE, "digits:", ENTROPY, [DENSE, "does not fit inputs [1, 8, 8]"]),
    "no such loss": (DENSE, "digits:", "hinge", ["hinge", "cross_entropy"]),
}


@pytest.mark.parametrize(("model", "data", "loss", "named"), WRONG.values(), ids=WRONG.keys())
def test_an_error_is_named_and_nothing_is_written(
    model: str, data: str, loss: str, named: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        export(model, tmp_path / "out", data, loss, json=True)
    for part in named:
        assert part in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_error_has_an_exit_code_and_no_traceback(tmp_path: Path) -> None:
    done = edgeflock(
        "export", "tests.server.training_graph.models:Nothing", "-o", "out", "--json", cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "tests.server.training_graph.models:Nothing" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export that takes no time."""

    def graphs(module: str, loss: str, x: object, y: object, make: object) -> ExportedGraphs:
        assert isinstance(x, np.ndarray)
        assert len(x) == 8
        print("a user's module prints")
        return ExportedGraphs(b"step", b"evaluation!")

    monkeypatch.setattr("edgeflock.server.training_graph.export.export_model", graphs)


@pytest.mark.usefixtures("_quick")
def test_a_person_reads_a_line_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export("a:B", tmp_path, "digits:", "mse")
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"{tmp_path}/step.onnx  4 bytes  sha256 {sha256(b'step').hexdigest()}",
        f"{tmp_path}/evaluation.onnx  11 bytes  sha256 {sha256(b'evaluation!').hexdigest()}",
    ]
    assert printed.err == "a user's module prints\n"


@pytest.mark.usefixtures("_quick")
def test_the_digest_alone_is_for_a_device_s_settings(capsys: pytest.CaptureFixture[str]) -> None:
    export("a:B", None, "digits:", "mse", digest=True)
    assert capsys.readouterr().out == f"{sha256(b'step').hexdigest()}\n"


def test_without_a_folder_there_is_nothing_to_do() -> None:
    with pytest.raises(ConfigError, match="name the folder for the graphs with --out"):
        export("a:B", None, "digits:", "mse")


@pytest.mark.usefixtures("_quick")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/in.* cannot be written"):
        export("a:B", tmp_path / "file" / "in", "digits:", "mse")


def test_it_gives_stdout_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def noisy(*_: object) -> ExportedGraphs:
        print("loading")
        return ExportedGraphs(b"step", b"evaluation")

    monkeypatch.setattr("edgeflock.server.training_graph.export.export_model", noisy)
    before = sys.stdout
    export("a:B", tmp_path, "digits:", "mse", json=True)
    assert sys.stdout is before
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == "a:B"
    assert err == "loading\n"
