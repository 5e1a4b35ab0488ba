"""What Edgeflock sends as it comes, and the record, against dense float32 on data they were not chosen on.

    python -m benchmarks.record [--data npz:fsdd_logmel.npz] [--corpus pos_ud_ewt.npz] [--seeds 3]

50 emulated devices, 10 samples a step: digits, spoken digits, and words (benchmarks/words.py). Dense
ASGD (learning rate / staleness), with and without the averaged model, runs at each rate of a grid and counts
at its best. Prints a Markdown table: the traffic to each accuracy, and the ratio.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.words import words_npz
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.machine import machine
from edgeflock.papers.reproduce import AS_PUBLISHED
from edgeflock.results.outcomes import Setting
from edgeflock.results.sweep import Job, outcome, sweep
from edgeflock.shared.numbers import percents, size, times
from edgeflock.shared.settings.presets import PRESETS

DENSE = {**AS_PUBLISHED, "coordination.rule": "tau", "compression.select": 1.0}
AVERAGED = {**DENSE, "coordination.average": 8.0}
RATES = (0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Task:
    """A data set with a model and how long to train."""

    name: str
    data: str
    module: str
    updates: int
    accuracies: tuple[float, ...]


Jobs = dict[tuple[str, Task], dict[str, list[Job]]]
"""(Heading, task) -> the jobs of each of its settings."""


def fleet(task: Task, settings: dict[str, object], rate: float) -> FleetFile:
    """The task's fleet with one setting."""
    sections: dict[str, dict[str, object]] = {
        "end": {"updates": task.updates},
        "journal": {"keep_updates": False},
        "model": {"module": task.module, "data": task.data},
        "coordination": {"learning_rate": rate, "window": 2048},
        "compression": {},
        "downlink": {},
        "fleet": {"devices": 50, "data": task.data, "evaluate_every": 250},
    }
    for path, value in settings.items():
        section, _, key = path.partition(".")
        sections[section][key] = value
    return FleetFile.model_validate(
        {**sections, "devices": {"all": {"step_ms": 1000, "timing": "exponential"}}}
    )


def jobs_of(task: Task, seeds: int, out: Path) -> dict[str, list[Job]]:
    """The task's settings by name, a job for each seed."""
    settings: dict[str, tuple[dict[str, object], float]] = {
        **{f"dense, rate {rate:g}": (DENSE, rate) for rate in RATES},
        **{f"dense, averaged, rate {rate:g}": (AVERAGED, rate) for rate in RATES},
        "as it comes": ({}, 0.05),
        "record": (PRESETS["low-bandwidth"], 0.05),
    }
    return {
        name: [
            Job(f"{task.name}: {name}", fleet(task, chosen, rate), seed, out / f"{task.name} {name}")
            for seed in range(seeds)
        ]
        for name, (chosen, rate) in settings.items()
    }


def lines(task: Task, settings: list[Setting]) -> Iterator[str]:
    """The task's rows of the table."""
    for accuracy in task.accuracies:
        traffic = {one.label: one.traffic_to_reach(accuracy) for one in settings}
        dense = min(
            (moved for name, moved in traffic.items() if moved and name.startswith("dense")),
            key=lambda moved: moved.ingress,
            default=None,
        )
        for one in settings:
            moved, updates = traffic[one.label], one.costs_to_reach(accuracy, "updates")
            learnt = [percents(each) for each in (one.best(), one.last(), one.last_five())]
            cells = [task.name, one.label, *learnt, f"{accuracy:.0%}", *"------"]
            if moved and updates:
                cells[6:10] = f"{fmean(updates):,.0f}", *map(size, (moved.ingress, moved.egress, moved.both))
            if moved and dense:
                cells[10:] = times(dense.ingress / moved.ingress), times(dense.both / moved.both)
            yield f"| {' | '.join(cells)} |"


def report(jobs: Jobs, seeds: int, processes: int | None = None) -> None:
    """Run the jobs, and print a table of each group's rows."""
    sweep([job for settings in jobs.values() for several in settings.values() for job in several], processes)
    print(f"{machine()}; {seeds} seeds\n")
    print(
        "| data | setting | best accuracy | last | last five | to | updates | received | sent | both ways "
        "| less than the best dense: up | both ways |"
    )
    print(f"|---|---|{'--:|' * 10}")
    for (name, task), settings in jobs.items():
        print(f"| {name} |{' |' * 11}")
        measured = [
            Setting(setting, [done for job in several if (done := outcome(job))])
            for setting, several in settings.items()
        ]
        print("\n".join(lines(task, measured)))


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.record", description=__doc__.split("\n")[0])
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", default=f"npz:{folder}/fsdd_logmel.npz", help="spoken digits")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("edgeflock-fleet/record"), help="keeps the runs")
    parser.add_argument("--corpus", type=Path, default=Path(folder, "pos_ud_ewt.npz"), help="tagged words")
    arguments = parser.parse_args()
    words = arguments.out / "words.npz"
    if not words.exists():
        arguments.out.mkdir(parents=True, exist_ok=True)
        words_npz(arguments.corpus, words)
    tasks = (
        Task("digits", "digits:", "edgeflock.client.zoo:DigitsCNN", 8_000, (0.95, 0.97, 0.98)),
        Task("speech", arguments.data, "edgeflock.client.zoo:SpeechCNN", 6_000, (0.80, 0.90, 0.95)),
        Task("words", f"npz:{words}", "benchmarks.words:WordMLP", 10_000, (0.80, 0.85, 0.87)),
    )
    report({(one.name, one): jobs_of(one, arguments.seeds, arguments.out) for one in tasks}, arguments.seeds)


if __name__ == "__main__":
    main()
