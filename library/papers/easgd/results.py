"""The results of the experiments: easgd.json."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from edgeflock.papers.easgd.settings import EASGD, LINKS, METHODS, STAGGERED, SYNC, TASKS
from edgeflock.papers.reproduce import Measured, Reproduction, Results
from edgeflock.results.outcomes import Outcome


def samples_per_second(outcome: Outcome) -> float:
    """Return the samples per virtual second of all nodes together, until the run's last evaluation."""
    return float(outcome.samples / outcome.rows[-1]["seconds"])


def summarise(results: Results, options: Reproduction) -> dict[str, Any]:
    """Throughput in samples per virtual second, accuracy of the last evaluation, bytes both ways."""
    tasks: dict[str, Any] = {}
    for task in TASKS:
        rates = {
            link: {
                one.setting.label: fmean(samples_per_second(run) for run in one.setting.outcomes)
                for one in results.get(f"throughput, {task.name}, {link}", [])
            }
            for link in LINKS
        }
        tasks[task.name] = {
            "throughput": rates,
            "gain": {link: _relative_gain(rate, STAGGERED.name, EASGD.name) for link, rate in rates.items()},
            "speed_up": {
                link: {method.name: _relative_gain(rate, method.name, SYNC.name) for method in METHODS}
                for link, rate in rates.items()
            },
            "accuracy": {
                one.setting.label: {
                    "last": fmean(one.setting.last()),
                    "last_five": fmean(one.setting.last_five()),
                    "best": fmean(one.setting.best()),
                    "seeds": [run.end["seed"] for run in one.setting.outcomes],
                    "seconds": fmean(run.rows[-1]["seconds"] for run in one.setting.outcomes),
                    "ingress": fmean(run.rows[-1]["ingress"] for run in one.setting.outcomes),
                    "egress": fmean(run.rows[-1]["egress"] for run in one.setting.outcomes),
                }
                for one in results.get(f"accuracy, {task.name}", [])
            },
            "staggered_over_easgd": _gains_by_seed(results.get(f"accuracy, {task.name}", [])),
        }
    return {**options.about, "tasks": tasks}


def _gains_by_seed(measured: Sequence[Measured]) -> dict[str, list[float]]:
    """Return the accuracy gain of staggered EASGD over EASGD in points, for each seed that both have."""
    runs = {one.setting.label: {run.end["seed"]: run for run in one.setting.outcomes} for one in measured}
    easgd, staggered = runs.get(EASGD.name, {}), runs.get(STAGGERED.name, {})
    both = [(staggered[seed], easgd[seed]) for seed in staggered if seed in easgd]
    return {
        "last": [100 * (one.last - other.last) for one, other in both],
        "last_five": [100 * (one.last_five - other.last_five) for one, other in both],
    }


def _relative_gain(rates: dict[str, float], one: str, other: str) -> float | None:
    """Return the relative gain of `one` over `other`. None if either is unknown."""
    return rates[one] / rates[other] - 1 if one in rates and other in rates else None
