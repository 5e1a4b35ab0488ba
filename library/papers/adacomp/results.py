"""The results of AdaComp's experiments: adacomp.json."""

from statistics import fmean
from typing import Any

from edgeflock.papers.adacomp.experiments import ASGD
from edgeflock.papers.reproduce import Measured, Reproduction, Results
from edgeflock.results.outcomes import Setting

ACCURACIES = (0.95, 0.97, 0.98)
"""Accuracies up to which updates and bytes are counted."""


def figures_of(one: Measured) -> dict[str, Any]:
    """Return the entry of one experiment in adacomp.json."""
    setting = one.setting
    return {
        "learning_rate": one.experiment.method.rate,
        "seeds": [outcome.end["seed"] for outcome in setting.outcomes],
        "final_accuracy": _spread(setting.best()),
        "last_accuracy": _spread(setting.last()),
        "last_five_accuracy": _spread(setting.last_five()),
        "updates": one.experiment.file.run.updates,
        "devices": one.experiment.file.fleet.devices,
        "ended": [outcome.end["ended"] for outcome in setting.outcomes],
        "at": {f"{accuracy:.2f}": _reached(setting, accuracy) for accuracy in ACCURACIES},
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": fmean(values), "min": min(values), "max": max(values)}


def _reached(setting: Setting, accuracy: float) -> dict[str, Any] | None:
    """Return updates and bytes until every run reached the accuracy. None if one did not."""
    updates, traffic = setting.costs_to_reach(accuracy, "updates"), setting.traffic_to_reach(accuracy)
    if not updates or traffic is None:
        return None
    return {
        "updates": fmean(updates),
        "ingress": traffic.ingress,
        "egress": traffic.egress,
        "reduction": traffic.reduction,
        "reduction_both_ways": traffic.reduction_both_ways,
    }


def summarise(results: Results, options: Reproduction) -> dict[str, Any]:
    """Return the contents of adacomp.json."""
    parts = {
        part.replace(" ", ""): {one.experiment.name: figures_of(one) for one in measured}
        for part, measured in results.items()
    }
    dense = parts["figure3"][ASGD.name]["at"]["0.97"]
    rivals = {**parts["figure3"], **parts["record"]}
    reaching = {name: one["at"]["0.97"] for name, one in rivals.items() if one["at"]["0.97"]}
    winner = min(reaching, key=lambda name: float(reaching[name]["ingress"]), default=None)
    best = reaching[winner] if winner else None
    return {
        **options.about,
        "data": options.data.rpartition("/")[2],
        "final_accuracy": "the highest of a run's evaluations, as in the paper",
        "last_five_accuracy": "the mean of a run's last five evaluations",
        "reduction": "of as many updates as dense float32; both ways: and as many dense models",
        "reduction_at_97": dense["ingress"] / best["ingress"] if dense and best else None,
        "reduction_both_ways_at_97": _both(dense) / _both(best) if dense and best else None,
        "best_at_97": winner,
        **parts,
    }


def _both(reached: dict[str, Any]) -> float:
    return float(reached["ingress"] + reached["egress"])
