"""Two runs side by side, from their journals."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgeflock.operations.compare import differences, show_comparison, summarize
from edgeflock.server.descent import Regime, StepMethod
from edgeflock.server.journal import Journal
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import Evaluation
from tests.library.command_line import edgeflock
from tests.server.pushes import LAYOUT


def run(directory: Path, regime: Regime, accuracies: list[float]) -> Path:
    directory.mkdir()
    with closing(Journal(directory / "journal.sqlite")) as journal:
        journal.begin_run("r", "m:M", LAYOUT, np.zeros(LAYOUT.size, np.float32), 1.0)
        journal.add_regime(0, regime)
        for number, accuracy in enumerate(accuracies):
            journal.add_evaluation(Evaluation(number, 1.0, 1 - accuracy, accuracy, 100 * number, 50 * number))
        journal.commit()
    return directory


def test_what_differs_and_how_both_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path / "a", Regime("adacomp", 0.1, 256), [0.1, 0.5, 0.75])
    second = run(tmp_path / "b", Regime("tau", 0.1, 64), [0.1, 0.2, 0.3, 0.4, 0.5, 0.625])
    assert differences(summarize(first), summarize(second)) == {
        "rule": ("adacomp", "tau"),
        "window": (256, 64),
    }
    show_comparison(first, second, as_json=False)
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if line.strip().startswith(("rule", "window"))] == [
        ["rule", "adacomp", "tau"],
        ["window", "256", "64"],
    ]
    assert shown.splitlines()[-1].split() == [
        *("2", "75.00%", "0.2500", "300", "B"),
        *("5", "62.50%", "0.3750", "750", "B"),
    ]
    show_comparison(first, first, as_json=False)
    assert "no setting that differs" in capsys.readouterr().out


def test_the_command_prints_json(tmp_path: Path) -> None:
    first = run(tmp_path / "a", Regime("adacomp", 0.1, 256), [0.1, 0.5])
    second = run(tmp_path / "b", Regime("adacomp", 0.2, 256), [])
    said = edgeflock("compare", "a", "b", "--json", cwd=tmp_path)
    found = json.loads(said.stdout)
    assert found["settings"] == {"learning_rate": [0.1, 0.2]}
    assert [len(one["evaluations"]) for one in found["runs"]] == [2, 0]
    assert edgeflock("compare", "a", "b", cwd=tmp_path).returncode == 0
    assert first != second


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no run: it has no journal.sqlite; name a server.directory"):
        summarize(tmp_path)


@pytest.mark.parametrize("as_json", [True, False])
def test_the_secret_of_a_private_run_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """Who knows it subtracts the noise from the models."""
    keys = ["ab" * 32, "cd" * 32]
    runs = [
        run(tmp_path / key[:2], Regime("none", 0.1, 256, method=StepMethod(bound=1.0, noise_key=key)), [])
        for key in keys
    ]
    show_comparison(*runs, as_json=as_json)
    shown = capsys.readouterr().out
    assert not any(key[:8] in shown for key in keys)
    assert differences(*map(summarize, runs)) == {}
