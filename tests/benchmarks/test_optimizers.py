"""The table of optimizers: its rows, which setting counts, what is kept."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.both_ways_report import Measured
from benchmarks.optimizers import TASKS, Task, main, rows
from benchmarks.optimizers_report import best, figures, table
from edgeflock.results.outcomes import Outcome, Setting


def measured(method: str, setting: str, *reached: tuple[int, float, int, int]) -> Measured:
    names = ("updates", "accuracy", "ingress", "egress")
    ended = {"seed": 0, "ended": "complete", "gradients_per_update": 2}
    run = Outcome([dict(zip(names, row, strict=True)) for row in reached], ended)
    return Measured(method, setting, Setting(f"{method}, {setting}", [run]))


PLAIN = measured("sgd", "rate 1", (100, 0.91, 10, 10), (200, 0.955, 40, 40))
SLOW = measured("adam", "rate 1", (100, 0.8, 10, 10), (200, 0.92, 20, 20))
FAST = measured("adam", "rate 2", (50, 0.91, 5, 5), (100, 0.96, 10, 10))


def test_the_best_setting_comes_farthest_with_the_fewest_bytes() -> None:
    accuracies = (0.9, 0.95, 0.97)
    assert best([SLOW, FAST], accuracies) is FAST
    assert list(figures(SLOW, accuracies)) == [0.9]
    assert figures(FAST, accuracies)[0.95]["gradients"] == 200


def test_ratios_are_to_plain_sgd() -> None:
    lines = table("mnist", TASKS[0].accuracies, [PLAIN, SLOW, FAST])
    adam = [line for line in lines if line.startswith("| adam | rate 2 | 2 | 1 |")]
    assert len(adam) == 1
    assert "| 90% | 100 | 50 |" in adam[0]
    assert "| 95% | 200 | 100 |" in lines[lines.index(adam[0]) + 1]
    assert lines[lines.index(adam[0]) + 2].count("| -") == 7


def test_more_seeds_count_before_a_better_one_and_a_row_says_how_many_came() -> None:
    far, short = FAST.runs.outcomes[0], SLOW.runs.outcomes[0]
    both = Measured("adam", "rate 3", Setting("adam, rate 3", [far, short]))
    assert best([FAST, both], (0.9, 0.95)) is both
    lines = table("mnist", (0.9, 0.95), [PLAIN, FAST, both])
    assert lines[-2].startswith("|  |  |  |  |  |  | 95% | 1 of 2 seeds | - |")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_row_computes_as_many_gradients(task: Task, tmp_path: Path) -> None:
    every = list(rows(task, tmp_path, 1000))
    assert len({row.name for row in every}) == len(every)
    for row in every:
        steps = row.file.local.steps if row.how is None else 1
        assert row.file.end.updates == 1000 // steps
    rivals = {row.method: row.how for row in every if row.how is not None}
    assert list(rivals) == ["FedAvg", "FedProx", "FedBuff K=10", "FedAsync"]


@pytest.mark.long
def test_it_runs_keeps_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (400, 28, 28)).astype(np.uint8)
    labels = random.integers(0, 10, 400).astype(np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])
    common = ["--task", "mnist", "--data", str(tmp_path), "--seeds", "1", "--gradients", "20"]
    common += ["--output", str(tmp_path / "runs"), "--report", str(tmp_path), "--processes", "1"]
    only = ["--only", "adam, beta 0, rate 0.01", "--only", "FedAsync, alpha 0.2, rate 0.07"]
    main([*common, *only])
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("mnist/*/seed-0.jsonl")}
    assert len(kept) == 2
    main([*common, "--finished"])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    written = (tmp_path / "optimizers.md").read_text()
    assert "| adam | beta 0, rate 0.01 | 1 | 1 |" in written
    assert "| FedAsync | alpha 0.2, rate 0.07 | 1 | 1 |" in written
    assert capsys.readouterr().out.count("## mnist") == 2
