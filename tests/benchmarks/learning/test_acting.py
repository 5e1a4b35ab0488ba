"""Fleets that act: which runs there are, and the table that is made of them."""

from typing import Any

import pytest

from benchmarks.learning.acting import ARMS, DEVICES, EVALUATIONS, SEEDS, TASKS, fleet_file, markdown, plan
from benchmarks.learning.cells import Cell


def figures(returns: list[float], solved: float) -> dict[str, Any]:
    curve = [
        {"steps": 100 * (n + 1), "return": value, "ingress": 500_000 * n, "egress": 500_000 * n}
        for n, value in enumerate(returns)
    ]
    return {
        "figures": {
            "accuracy": returns[-1],
            "mean_of_last": sum(returns[-3:]) / 3,
            "solved": next((row for row in curve if row["return"] >= solved), None),
            "ingress": curve[-1]["ingress"],
            "egress": curve[-1]["egress"],
        }
    }


def test_every_arm_runs_each_task_with_every_seed() -> None:
    cells = list(plan([], [], {}))
    of_pictures = [name for name, arm in ARMS.items() if arm.pictures]
    others = (len(TASKS) - 1) * (len(ARMS) - len(of_pictures))
    assert {cell.task for cell in cells if cell.arm in of_pictures} == {"QBert"}
    assert len(cells) == len(SEEDS) * (others + len(of_pictures))
    assert {cell.n for cell in cells if ARMS[cell.arm].algorithm} == {1}
    assert [cell.seed for cell in plan(["Acrobot"], ["EASGD"], {})] == list(SEEDS)


@pytest.mark.parametrize("name", [name for name, arm in ARMS.items() if not arm.algorithm])
def test_every_fleet_takes_as_many_steps(name: str) -> None:
    arm = ARMS[name]
    for task in TASKS.values():
        file = fleet_file(task, arm)
        taken = file.end.updates * arm.steps(task)
        assert task.steps - file.local.batch * file.local.steps < taken <= task.steps
        assert file.fleet.devices == DEVICES
        assert file.end.updates // file.fleet.evaluate_every >= EVALUATIONS


def test_the_table_has_means_and_the_worst_seed() -> None:
    ours = "Edgeflock, PPO"
    text = markdown(
        {
            Cell("CartPole", DEVICES, "acting", ours, 0): figures([100, 480, 500], 475),
            Cell("CartPole", DEVICES, "acting", ours, 1): figures([100, 200, 300], 475),
            Cell("CartPole", 1, "acting", "SB3 A2C, rl-zoo", 0): {"failed": "killed"},
        }
    )
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {ours}"))
    assert row == f"| {ours} | 2 | 400.0 (300.0) | 280.0 (200.0) | 1 of 2 | 200 | 1.0 MB | 2.0 MB |"
    assert "SB3 A2C" not in text.split("## ")[1]
