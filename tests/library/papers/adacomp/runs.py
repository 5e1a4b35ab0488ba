"""AdaComp's experiments, and runs of them made by hand."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import QUICK, AdacompScale
from edgeflock.papers.adacomp.report import summarise
from edgeflock.papers.reproduce import Experiment, Measured, Reproduction, Results
from edgeflock.results.outcomes import Outcome, Setting

DATA = "npz:mnist.npz"
SAMPLES = 60_000


def everything(scale: AdacompScale) -> list[Experiment]:
    return [
        *experiments.record(DATA, scale),
        *experiments.figure_3(DATA, scale, experiments.FIGURE_3),
        *experiments.table_2(DATA, SAMPLES, scale, experiments.ADACOMP),
        *experiments.figure_4(DATA, SAMPLES, scale, experiments.ADACOMP),
    ]


def run_of(*reached: tuple[int, float, int], seed: int = 0) -> Outcome:
    """A run with an evaluation for each (updates, accuracy, ingress); 100 bytes sent for each update."""
    rows = [
        {
            "updates": updates,
            "seconds": updates / 10,
            "loss": 0.1,
            "accuracy": accuracy,
            "ingress": ingress,
            "egress": 100 * updates,
        }
        for updates, accuracy, ingress in reached
    ]
    return Outcome(rows, {"seed": seed, "ended": "complete", "size": 1000})


def measured(one: Experiment, *outcomes: Outcome) -> Measured:
    return Measured(one, Setting(one.name, outcomes))


def best_of(accuracy: float) -> Outcome:
    return run_of((10, accuracy / 2, 5), (20, accuracy, 10), (30, accuracy - 0.01, 15))


# Two seeds each. Updates are those of the rows; 97% is reached at the second row or the third.
DENSE = (
    run_of((1000, 0.96, 800_000_000), (2000, 0.971, 1_600_000_000), (3000, 0.979, 2_400_000_000)),
    run_of((1000, 0.94, 800_000_000), (2000, 0.965, 1_600_000_000), (3000, 0.975, 2_400_000_000), seed=1),
)
SMALL = (
    run_of((1000, 0.951, 1_000_000), (2000, 0.972, 2_000_000), (3000, 0.985, 3_000_000)),
    run_of((1000, 0.952, 1_000_000), (2000, 0.973, 2_000_000), (3000, 0.981, 3_000_000), seed=1),
)
LARGE = (
    run_of((1000, 0.951, 9_000_000), (2000, 0.972, 18_000_000)),
    run_of((1000, 0.961, 9_000_000), (2000, 0.974, 18_000_000)),
)
SHORT = (
    run_of((1000, 0.951, 1000), (2000, 0.972, 2000)),
    run_of((1000, 0.951, 1000), (2000, 0.969, 2000)),
)


def results_of(dense: Sequence[Outcome], record: Sequence[Outcome]) -> Results:
    """Everything that a report needs: `dense` for ASGD, `record` for the record."""
    results: Results = {}
    for one in everything(QUICK):
        outcomes = {
            "ASGD": dense,
            "record": record,
            "AdaComp c=0.01": LARGE,
            "60,000 images, crashes, n=200": (best_of(0.9525),),
            "60,000 images, no crashes, n=200": (best_of(0.9650),),
        }.get(one.name, SHORT)
        results.setdefault(one.part, []).append(measured(one, *outcomes))
    return results


def summary_of(results: Results) -> dict[str, Any]:
    return summarise(results, Reproduction("edgeflock reproduce adacomp --quick", Path("out"), DATA))


def row_of(markdown: str, name: str) -> list[str]:
    """The cells of the row that begins with `name`."""
    (line,) = re.findall(rf"^\| {re.escape(name)} \|.*$", markdown, re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")][1:]
