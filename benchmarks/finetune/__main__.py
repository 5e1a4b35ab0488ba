"""Fine-tuning by eight devices against one machine: python -m benchmarks.finetune FOLDER RESULTS COMMAND.

    run tiny central 0.003            a line of RESULTS, a .jsonl file
    run whole fleet SETTING=VALUE ...
    run tiny central 0.003 cosine     the rate falls to zero
    run short fleet                   600 gradients of small batches
    run long fleet --seed 1           4,800 of them
    run whole memory torch int8         the peak of a device's process beyond that of one without a model
    report                            the table in Markdown

FOLDER is that of benchmarks.finetune.pretrain. What stands in RESULTS is not run again.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.finetune.arms import TASKS, central, fleet
from benchmarks.finetune.memory import measure
from benchmarks.finetune.report import report
from benchmarks.learning import runner


def run(folder: Path, results: Path, size: str, arm: str, words: list[str], seed: int = 0) -> None:
    """Run a cell and append its line, if there is none."""
    cell: dict[str, Any] = {"size": size, "arm": arm, "settings": words}
    if seed:
        cell["seed"] = seed
    lines = results.read_text().splitlines() if results.exists() else []
    if any(json.loads(line)["cell"] == cell for line in lines):
        return
    task = replace(TASKS[size], seed=seed)
    figures: dict[str, Any]
    if arm == "memory":
        figures = measure(task, folder, *words)
    else:
        figures = (fleet if arm == "fleet" else central)(task, folder, words)
    given = " ".join([size, arm, *words, *([f"--seed {seed}"] if seed else [])])
    command = f"python -m benchmarks.finetune FOLDER RESULTS run {given}"
    with results.open("a") as file:
        print(json.dumps({"cell": cell, "figures": figures, **runner.notes(command)}), file=file)
    print(cell, {name: value for name, value in figures.items() if name != "curve"}, flush=True)


def main() -> None:
    reader = argparse.ArgumentParser("benchmarks.finetune", description=__doc__)
    reader.add_argument("folder", type=Path)
    reader.add_argument("results", type=Path)
    commands = reader.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("size", choices=TASKS)
    running.add_argument("arm", choices=["fleet", "central", "memory"])
    running.add_argument("settings", nargs="*", help="the rate, settings of a fleet, or a device's backend")
    running.add_argument("--seed", type=int, default=0)
    commands.add_parser("report")
    asked = reader.parse_args()
    if asked.command == "report":
        print(report([json.loads(line) for line in asked.results.read_text().splitlines()]))
        return
    torch.set_num_threads(1)
    run(asked.folder, asked.results, asked.size, asked.arm, asked.settings, asked.seed)


if __name__ == "__main__":
    main()
