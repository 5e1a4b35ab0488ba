"""`edgeflock reproduce all --check`: the cheapest committed figures, measured again."""

import json
import os
from pathlib import Path

import pytest

from edgeflock.papers.check import check_figures, compare
from edgeflock.papers.reproduce import Reproduction
from edgeflock.shared.errors import ConfigError, EdgeflockError

COMMITTED = Path(__file__).parents[3] / "docs" / "results" / "check.json"
MNIST = Path(os.environ.get("EDGEFLOCK_DATA", "")) / "mnist.npz"


@pytest.mark.slow
@pytest.mark.skipif(not MNIST.is_file(), reason="needs mnist.npz in EDGEFLOCK_DATA")
def test_the_committed_figures_are_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of the record, and scheduling: what CI affords of it."""
    options = Reproduction("the command", tmp_path, f"npz:{MNIST}", quick=True)
    check_figures(options, COMMITTED)
    assert capsys.readouterr().out.count(": as committed\n") == 4
    left = json.loads((tmp_path / "check.json").read_text())
    assert (left["command"], left["seeds"]) == ("the command", [0])
    committed = json.loads(COMMITTED.read_text())
    off = {name: value + 1 for name, value in committed["figures"].items() if name.endswith("accuracy")}
    (tmp_path / "off.json").write_text(json.dumps({"figures": committed["figures"] | off}))
    with pytest.raises(EdgeflockError, match="1 of 4 figures"):  # the runs are not made again
        check_figures(options, tmp_path / "off.json")


def test_bands() -> None:
    expected = {"a: accuracy": 0.9, "b: bytes": 1000.0, "c: bytes": 1000.0}
    measured = {"a: accuracy": 0.855, "b: bytes": 1019.0, "c: bytes": 1021.0, "d: gain": 0.1}
    assert compare(measured, expected) == {
        "a: accuracy": "",
        "b: bytes": "",
        "c: bytes": "1021 is not within 20 of 1000",
        "d: gain": "0.1 is not among the committed figures",
    }


@pytest.mark.parametrize("content", [None, "no JSON", "{}"])
def test_no_committed_figures(tmp_path: Path, content: str | None) -> None:
    """It says so before anything runs."""
    path = tmp_path / "check.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="run it in a checkout"):
        check_figures(Reproduction("the command", tmp_path / "out"), path)
    assert not (tmp_path / "out").exists()
