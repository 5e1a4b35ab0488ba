"""Personal layers against one model for all, on data that differ by device. Run from the repository's root.

    python -m benchmarks.personal --results docs/results/personal.jsonl run cifar 'layers.11.*'
    python -m benchmarks.personal --results docs/results/personal.jsonl report

Each device holds out a tenth of its own samples. Figures are means over these samples of all devices, and
over the tenth of the devices with the lowest accuracy. Cells that the file has are not run again.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.learning import runner
from benchmarks.learning.arms import parsed
from benchmarks.learning.data import loaded
from benchmarks.learning.measuring import Score
from benchmarks.learning.play import prepared_of
from benchmarks.learning.shares import SPLITS, deal
from benchmarks.learning.tasks import TASKS
from edgeflock.devices.emulation.fleet.running import run_fleet
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.protocol.frames import Evaluation

LAST = 3
"""The last evaluations, over which figures are averaged."""


def play(task_name: str, devices: int, split: str, personal: str, seed: int) -> dict[str, Any]:
    """Run a cell; return its figures. `personal` is a pattern of parameters, or "" for one model."""
    torch.set_num_threads(1)
    task = TASKS[task_name]
    settings = ["evaluation.on_devices=1000000"]  # the bench itself evaluates on the devices
    arm = parsed(" ".join(["product", *settings, *([f"model.personal={personal}"] if personal else [])]))
    data = loaded(task.load)
    shares = deal(split, data.train_groups, devices, task.batch, seed)
    prepared = prepared_of(task, arm, data, shares, seed, Score(None, len(data.names)))
    curve: list[Evaluation] = []
    run_fleet(replace(prepared, metrics={}), seed, Callbacks(on_evaluated=curve.append))
    own = [evaluation.metrics for evaluation in curve]
    worst = [one["on_devices.worst-decile"] for one in own if "on_devices.worst-decile" in one]
    return {
        "accuracy": fmean(one["on_devices.accuracy"] or 0.0 for one in own[-LAST:]),
        "worst_decile": fmean(value or 0.0 for value in worst[-LAST:]) if worst else None,
        "bytes": curve[-1].ingress + curve[-1].egress,
        "curve": [one["on_devices.accuracy"] for one in own],
    }


def run(file: Path, task: str, devices: int, splits: Sequence[str], personal: str, seeds: int) -> None:
    """Run the missing cells and append each to `file`."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = [row["cell"] for row in rows]
    for seed in range(seeds):
        for split in splits:
            for pattern in ("", personal):
                cell = {"task": task, "n": devices, "data": split, "personal": pattern, "seed": seed}
                if cell in known:
                    continue
                figures = play(task, devices, split, pattern, seed)
                notes = runner.notes(f"python -m benchmarks.personal run {task} {personal} --split {split}")
                with file.open("a") as out:
                    out.write(json.dumps({"cell": cell, "figures": figures, **notes}) + "\n")
                print(cell, figures["accuracy"], figures["worst_decile"], flush=True)


def report(file: Path) -> None:
    """Print the table in Markdown: means over seeds, and their range."""
    groups: dict[tuple[str, int, str, str], list[dict[str, Any]]] = {}
    for row in map(json.loads, file.read_text().splitlines()):
        cell = row["cell"]
        groups.setdefault((cell["task"], cell["n"], cell["data"], cell["personal"]), []).append(
            row["figures"]
        )
    print("| task | devices | data | personal layers | own data | worst tenth | both ways |")
    print("|---|--:|---|---|--:|--:|--:|")
    for (task, devices, data, personal), figures in sorted(groups.items()):
        cells = [_range([one[key] for one in figures]) for key in ("accuracy", "worst_decile")]
        octets = f"{fmean(one['bytes'] for one in figures) / 1e6:.1f} MB"
        print(f"| {task} | {devices} | {data} | {personal or 'none'} | {' | '.join(cells)} | {octets} |")


def _range(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{100 * fmean(known):.1f} ({100 * min(known):.1f} to {100 * max(known):.1f})"


def main() -> None:
    reader = argparse.ArgumentParser("benchmarks.personal", description=__doc__)
    reader.add_argument("--results", type=Path, required=True)
    commands = reader.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("task", choices=TASKS)
    running.add_argument("personal", help="pattern of the parameters that stay on devices")
    running.add_argument("--n", type=int, default=10)
    running.add_argument("--split", nargs="+", choices=SPLITS, default=["dirichlet", "label"])
    running.add_argument("--seeds", type=int, default=3)
    commands.add_parser("report")
    asked = reader.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if asked.command == "report":
        return report(asked.results)
    run(asked.results, asked.task, asked.n, asked.split, asked.personal, asked.seeds)


if __name__ == "__main__":
    main()
