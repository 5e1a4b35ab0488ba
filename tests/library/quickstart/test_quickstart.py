"""`edgeflock quickstart`: real processes, and what it refuses."""

import csv
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.quickstart import QuickstartPlan
from edgeflock.quickstart.plan import backend_of
from edgeflock.quickstart.run import QuickstartResult, show_result
from edgeflock.shared.data import datasets
from tests.library.command_line import edgeflock
from tests.test_no_telemetry import environment, identifiers


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--clients", "2000"], "--clients 2000"),
        (["--data", "npz:nowhere.npz"], "no such file"),
        (["--set", "coordination.rule=adacmp"], "'adacomp'"),
        (["--set", "compression.select=1.5"], "compression.select"),
        (["--model", "edgeflock.client.zoo:Missing"], "zoo:Missing"),
        (["--backend", "jax"], "--backend 'jax': must be auto, onnx, torch or mixed"),
    ],
    ids=["more clients than samples", "no data", "rule", "select", "model", "backend"],
)
def test_quickstart_refuses_what_cannot_work(arguments: list[str], named: str, tmp_path: Path) -> None:
    done = edgeflock("quickstart", "--json", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert named in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if "--model" not in arguments:  # a module can only be tried by the server process
        assert list(tmp_path.iterdir()) == []


def test_quickstart_trains_over_real_processes(tmp_path: Path) -> None:
    arguments = ["--clients", "2", "--updates", "600", "--set", "compression.select=0.02", "--seed", "3"]
    done = edgeflock("quickstart", "--json", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    keys = "accuracy updates clients ingress_bytes egress_bytes dense_bytes reduction reduction_both_ways"
    assert set(result) == {
        *keys.split(),
        *("last_five_accuracy", "best_accuracy", "seconds", "model_path"),
    }
    assert result["updates"] == 600
    assert result["clients"] == 2
    assert result["accuracy"] > 0.8
    path = (tmp_path / result["model_path"]).with_name("journal.sqlite")
    with closing(sqlite3.connect(path)) as journal:
        accuracies = [row[0] for row in journal.execute("SELECT accuracy FROM evaluations ORDER BY rowid")]
    assert len(accuracies) > 1
    assert result["accuracy"] == accuracies[-1]
    assert result["last_five_accuracy"] == pytest.approx(sum(accuracies[-5:]) / len(accuracies[-5:]))
    assert result["best_accuracy"] == max(accuracies)
    assert result["dense_bytes"] == 600 * 4 * 38_282
    assert result["reduction"] == pytest.approx(result["dense_bytes"] / result["ingress_bytes"], abs=0.1)
    assert result["reduction"] > 100
    both = 2 * result["dense_bytes"] / (result["ingress_bytes"] + result["egress_bytes"])
    assert result["reduction_both_ways"] == pytest.approx(both, abs=0.1)

    from safetensors.numpy import load_file

    tensors = load_file(tmp_path / result["model_path"])
    assert sum(tensor.size for tensor in tensors.values()) == 38_282
    said = edgeflock("predict", result["model_path"], "--data", "digits:", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    predicted = [int(row["prediction"]) for row in csv.DictReader(said.stdout.splitlines())]
    assert np.mean(predicted == datasets.load("digits:", "test").y) == pytest.approx(result["accuracy"])


def test_the_table_says_where_the_run_stayed_beside_its_best(capsys: pytest.CaptureFixture[str]) -> None:
    result = QuickstartResult(
        0.5, 0.75, 0.9833, 8000, 4, 5_300_000, 39_200_000, 1_225_000_000, 232.1, 55.3, 27.5, "m"
    )
    show_result(result)
    shown = capsys.readouterr().out
    assert "accuracy       50.00% at the end, 75.00% mean of the last five, 98.33% best" in shown
    assert "reduction      232x up, 55x both ways" in shown
    assert max(map(len, shown.splitlines())) <= 80
    show_result(replace(result, accuracy=None, last_five_accuracy=None, best_accuracy=None))
    assert "accuracy       -" in capsys.readouterr().out


def quickstart_plan(backend: str) -> QuickstartPlan:
    return QuickstartPlan("digits:", "", 4, backend, 0, 0, Path())


@pytest.mark.parametrize(
    ("backend", "each"),
    [
        ("auto", ["auto"] * 4),
        ("onnx", ["onnx"] * 4),
        ("torch", ["torch"] * 4),
        ("mixed", ["torch", "onnx", "torch", "onnx"]),
    ],
)
def test_what_the_clients_of_a_quickstart_train_with(backend: str, each: list[str]) -> None:
    assert [backend_of(quickstart_plan(backend), number) for number in range(1, 5)] == each


@pytest.mark.slow
def test_quickstart_without_torch_on_the_devices(tmp_path: Path) -> None:
    """The server exports the step, and real client processes train with it. None makes an identifier of this
    machine, as onnxruntime does by itself.
    """
    arguments = [
        "--clients",
        "2",
        "--updates",
        "600",
        "--set",
        "compression.select=0.02",
        "--backend",
        "onnx",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "edgeflock", "quickstart", "--json", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not identifiers(tmp_path)
    result = json.loads(done.stdout)
    assert result["updates"] == 600
    assert result["accuracy"] > 0.8
    (run,) = (tmp_path / "edgeflock-quickstart").iterdir()
    logs = [(run / f"device-{number}.log").read_text() for number in (1, 2)]
    reported = [re.search(r"^([\d,]+) updates", log, re.MULTILINE) for log in logs]
    assert sum(int(one[1].replace(",", "")) for one in reported if one) == 600
