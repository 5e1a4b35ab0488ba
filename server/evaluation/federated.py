"""Federated evaluation: devices' own evaluations, combined."""

import math
from collections.abc import Iterable, Mapping

from edgeflock.shared.protocol.messages import Facts

_PREFIX = "eval."
_WEIGHT = "eval.num-examples"

_MAX_EXAMPLES = 1 << 53
"""The most examples of a device: a larger number is no count."""

_MIN_DEVICES = 10
"""The least devices that have a worst decile."""

_MIN_EXAMPLES = 10
"""The least examples: with fewer, chance decides the accuracy."""


def combine_evaluations(telemetry: Iterable[Facts]) -> Mapping[str, float] | None:
    """Return the example-weighted means of the devices' last eval.NAME metrics, and the number of examples.

    None if no device reports any. A metric that some devices lack is the mean over the others. Non-finite
    means are omitted. "worst-decile" is the mean accuracy of the tenth of the devices with the lowest, at
    least one of ten.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    accuracies: list[float] = []
    for facts in telemetry:
        weight = facts.get(_WEIGHT)
        if not isinstance(weight, int | float) or not 0 < weight <= _MAX_EXAMPLES:
            continue
        if (accuracy := own_accuracy(facts)) is not None:
            accuracies.append(accuracy)
        for key, value in facts.items():
            if key.startswith(_PREFIX) and isinstance(value, int | float):
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0.0) + weight
    means = {key.removeprefix(_PREFIX): sums[key] / weights[key] for key in sums if key != _WEIGHT}
    finite = {key: mean for key, mean in means.items() if math.isfinite(mean)}
    if not weights:
        return None
    worst = {"worst-decile": _worst_decile(accuracies)} if len(accuracies) >= _MIN_DEVICES else {}
    return {**finite, **worst, "num-examples": weights[_WEIGHT]}


def _worst_decile(accuracies: list[float]) -> float:
    """Return the mean of the lowest tenth."""
    lowest = sorted(accuracies)[: max(1, len(accuracies) // 10)]
    return sum(lowest) / len(lowest)


def own_evaluation(facts: Facts) -> Facts:
    """Return the facts of a device's own evaluation."""
    return {key: value for key, value in facts.items() if key.startswith(_PREFIX)}


def own_accuracy(evaluation: Facts) -> float | None:
    """Return the metric whose name ends with accuracy or acc; None without one, or with few examples."""
    examples = evaluation.get(_WEIGHT)
    if not isinstance(examples, int | float) or not _MIN_EXAMPLES <= examples <= _MAX_EXAMPLES:
        return None
    for key, value in evaluation.items():
        if (
            key.startswith(_PREFIX)
            and key.lower().endswith(("accuracy", "acc"))
            and isinstance(value, int | float)
            and 0 <= value <= 1
        ):
            return float(value)
    return None
