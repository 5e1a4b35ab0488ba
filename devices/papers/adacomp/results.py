"""What AdaComp's experiments came to: adacomp.json."""

from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from edgeflock.devices.papers.adacomp.experiments import ASGD
from edgeflock.devices.papers.machine import machine
from edgeflock.devices.papers.reproduce import Measured, Results

ACCURACIES = (0.95, 0.97, 0.98)


def figures_of(one: Measured) -> dict[str, Any]:
    """What adacomp.json tells of it."""
    best = one.setting.best()
    reached: dict[str, Any] = {}
    for accuracy in ACCURACIES:
        updates, ingress = (one.setting.reaching(accuracy, key) for key in ("updates", "ingress"))
        reached[f"{accuracy:.2f}"] = (
            {"updates": fmean(updates), "ingress": fmean(ingress)} if updates and ingress else None
        )
    return {
        "learning_rate": one.experiment.method.rate,
        "seeds": [outcome.end["seed"] for outcome in one.setting.outcomes],
        "final_accuracy": {"mean": fmean(best), "min": min(best), "max": max(best)},
        "updates": one.experiment.file.run.updates,
        "devices": one.experiment.file.fleet.devices,
        "ended": [outcome.end["ended"] for outcome in one.setting.outcomes],
        "at": reached,
    }


def summarise(results: Results, data: str, command: str) -> dict[str, Any]:
    """What adacomp.json holds."""
    parts = {
        part.replace(" ", ""): {one.experiment.name: figures_of(one) for one in measured}
        for part, measured in results.items()
    }
    dense = parts["figure3"][ASGD.name]["at"]["0.97"]
    rivals = {**parts["figure3"], **parts["record"]}
    reaching = {name: one["at"]["0.97"]["ingress"] for name, one in rivals.items() if one["at"]["0.97"]}
    winner = min(reaching, key=lambda name: reaching[name], default=None)
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "data": data.rpartition("/")[2],
        "final_accuracy": "the highest of a run's evaluations, as in the paper",
        "reduction_at_97": dense["ingress"] / reaching[winner] if dense and winner else None,
        "best_at_97": winner,
        **parts,
    }
