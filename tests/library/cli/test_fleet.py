"""`edgeflock fleet FILE.toml`, from the command line to the report."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeflock.cli.fleet import run_fleet_file
from edgeflock.results.sweep import Job, run
from edgeflock.shared.data.datasets import load
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.numbers import size, times
from tests.devices.emulation.fleets import MIXED, fleet_of
from tests.devices.emulation.fleets import run as run_watched
from tests.library.command_line import edgeflock


@pytest.mark.slow
def test_from_the_file_to_the_figures(tmp_path: Path) -> None:
    """In another process, started anew, it comes to what it comes to in this one."""
    path, out = tmp_path / "mixed.toml", tmp_path / "deep" / "out"
    path.write_text(MIXED)
    train, test, data = load("digits:", "train"), load("digits:", "test"), tmp_path / "data.npz"
    np.savez(data, x_train=train.x, y_train=train.y, x_test=test.x, y_test=test.y)
    settings = [f"fleet.data=npz:{data}", f"model.data=npz:{data}", "fleet.devices=9"]
    sets = [part for setting in settings for part in ("--set", setting)]
    done = edgeflock("fleet", str(path), "--out", str(out), *sets, "--json")
    assert done.returncode == 0, done.stderr
    expected = run_watched(fleet_of(MIXED, *settings))

    printed = json.loads(done.stdout)
    assert printed["directory"] == str(out)
    (end,) = printed["runs"]
    assert (end["seed"], end["ended"], end["updates"]) == (0, "complete", 40)
    assert end["digest"] == expected.result.digest
    assert end["classes"]["quick"]["devices"] == 6
    last, rows = expected.rows[-1], expected.rows[-5:]
    assert (end["ingress"], end["egress"], end["size"]) == (last.ingress, last.egress, 650)
    assert end["reduction_both_ways"] == pytest.approx(2 * 4 * 650 * 40 / (last.ingress + last.egress))
    accuracies = [row.accuracy or 0.0 for row in expected.rows]
    assert end["accuracy"] == accuracies[-1]
    assert end["last_five_accuracy"] == pytest.approx(sum(accuracies[-5:]) / len(rows))
    assert end["best_accuracy"] == max(accuracies)
    assert sorted(file.name for file in out.iterdir()) == [
        "accuracy.png",
        "accuracy.svg",
        "lock",
        "report.md",
        "seed-0.jsonl",
        "settings.json",
    ]
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "9 emulated devices, seeds 0" in (out / "accuracy.svg").read_text()
    assert ">received and sent by the server<" in (out / "accuracy.svg").read_text()
    assert last.accuracy is not None
    report = (out / "report.md").read_text()
    assert report.startswith("# Fleet mixed\n")
    assert f"| 0 | complete | 40 | {last.time:.1f} s | {last.accuracy:.2%} |" in report
    assert report.count("| received | sent | both ways |") == 2
    assert "\nNot every run reached 90%.\n" in report
    assert f"{size(last.ingress + last.egress)} ({times(end['reduction_both_ways'])}) |" in report
    assert "| quick | 6 | 0 |" in report


def test_a_report_of_several_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has been run is reported without running it again."""
    path, out = tmp_path / "mixed.toml", tmp_path / "out"
    path.write_text(MIXED)
    seeds = [1, 2]
    file = fleet_of(MIXED)
    file = file.model_copy(update={"fleet": file.fleet.model_copy(update={"seeds": tuple(seeds)})})
    out.mkdir()
    for seed in seeds:
        run(Job("mixed", file, seed, out))
    path.write_text(MIXED.replace("[fleet]", "[fleet]\nseeds = [1, 2]"))
    run_fleet_file(path, [], out, as_json=False)
    printed = capsys.readouterr().out
    assert printed.strip() == (out / "report.md").read_text().strip()
    assert "| 1 | complete | 40 |" in printed
    assert "| 2 | complete | 40 |" in printed
    assert "Means over the seeds." in printed


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("[end]\nupdates = 5\n\n[devices.pi]\nstep_ms = 5\ncrash = 1\n")
    done = edgeflock("fleet", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"edgeflock: {path} line 6: devices.pi.crash = 1: must be less than 1\n"
    assert not (tmp_path / "out").exists()


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("[end]\nupdates = 5\n")
    code = "import sys; sys.modules['torch'] = None; from edgeflock.cli import main; main()"
    command = [sys.executable, "-c", code, "fleet", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "pip install '" in done.stderr


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    path, out = tmp_path / "fleet.toml", tmp_path / "out"
    path.write_text(MIXED)
    out.write_text("a file")
    with pytest.raises(ConfigError, match=str(out)):
        run_fleet_file(path, [], out, as_json=True)
