"""What runs do as they come with very small and very large models, against dense float32.

    python -m benchmarks.sizes [--only NAME] [--devices 4 16 50 200] [--seeds 1] [--processes 1]

Models of 610 and 650 parameters and of 11 million, 10 samples a step. Dense ASGD (learning rate / staleness)
with the averaged model runs at each rate of a grid and counts at its best. Prints a Markdown table as
benchmarks/record.py does.
"""

import argparse
import os
from pathlib import Path

from torch import nn

from benchmarks.record import AVERAGED, Task, fleet, report
from edgeflock.results.sweep import Job

RATES = (0.1, 0.2, 0.4)

AS_IT_COMES: dict[str, object] = {"coordination.window": 256}


class CoarseMLP(nn.Sequential):
    """28 x 28 images, seen as 7 x 7, in 10 classes by ten hidden units; 610 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10), nn.ReLU(), nn.Linear(10, 10))


class WideMLP(nn.Sequential):
    """28 x 28 images in 10 classes by two wide hidden layers; 10,988,760 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            nn.Linear(784, 3100),
            nn.ReLU(),
            nn.Linear(3100, 2750),
            nn.ReLU(),
            nn.Linear(2750, 10),
        )


def jobs_of(task: Task, devices: int, seeds: int, out: Path) -> dict[str, list[Job]]:
    """The task's settings by name, a job for each seed."""
    settings: dict[str, tuple[dict[str, object], float]] = {
        **{f"dense, averaged, rate {rate:g}": (AVERAGED, rate) for rate in RATES},
        "as it comes": (AS_IT_COMES, 0.05),
    }
    sized: dict[str, object] = {"fleet.devices": devices, "fleet.evaluate_every": task.updates // 20}
    return {
        name: [
            Job(
                f"{task.name}, {devices}: {name}",
                fleet(task, {**chosen, **sized}, rate),
                seed,
                out / f"{task.name} {devices} {name}",
            )
            for seed in range(seeds)
        ]
        for name, (chosen, rate) in settings.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.sizes", description=__doc__.split("\n")[0])
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", default=f"npz:{folder}/mnist.npz", help="MNIST")
    parser.add_argument("--only", nargs="*", default=[], help="tasks by name")
    parser.add_argument("--devices", type=int, nargs="*", default=[4, 16, 50, 200])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("edgeflock-fleet/sizes"), help="keeps the runs")
    asked = parser.parse_args()
    tasks = (
        Task("coarse", asked.data, "benchmarks.sizes:CoarseMLP", 6_000, (0.75, 0.80)),
        Task("linear", "digits:", "edgeflock.client.zoo:DigitsLinear", 6_000, (0.90, 0.95)),
        Task("wide", asked.data, "benchmarks.sizes:WideMLP", 600, (0.80, 0.90)),
    )
    jobs = {
        (f"{task.name}, {devices} devices", task): jobs_of(task, devices, asked.seeds, asked.out)
        for task in tasks
        for devices in asked.devices
        if task.name in (asked.only or [task.name])
    }
    report(jobs, asked.seeds, asked.processes)


if __name__ == "__main__":
    main()
