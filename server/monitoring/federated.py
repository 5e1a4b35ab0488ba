"""Federated evaluation: devices' own evaluations, combined."""

import math
from collections.abc import Iterable, Mapping

from edgeflock.shared.protocol.messages import Facts

_PREFIX = "eval."
_WEIGHT = "eval.num-examples"

_MAX_EXAMPLES = 1 << 53
"""The most examples of a device: a larger number is no count."""

_MIN_EXAMPLES = 10
"""The least examples: with fewer, chance decides the accuracy."""


def combine_evaluations(telemetry: Iterable[Facts]) -> Mapping[str, float] | None:
    """Return the example-weighted means of the devices' last eval.NAME metrics, and the number of examples.

    None if no device reports any. A metric that some devices lack is the mean over the others. Non-finite
    means are omitted.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for facts in telemetry:
        weight = facts.get(_WEIGHT)
        if not isinstance(weight, int | float) or not 0 < weight <= _MAX_EXAMPLES:
            continue
        for key, value in facts.items():
            if key.startswith(_PREFIX) and isinstance(value, int | float):
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0.0) + weight
    means = {key.removeprefix(_PREFIX): sums[key] / weights[key] for key in sums if key != _WEIGHT}
    finite = {key: mean for key, mean in means.items() if math.isfinite(mean)}
    return {**finite, "num-examples": weights[_WEIGHT]} if weights else None


def own_evaluation(facts: Facts) -> Facts:
    """Return the facts of a device's own evaluation."""
    return {key: value for key, value in facts.items() if key.startswith(_PREFIX)}


def own_accuracy(evaluation: Facts) -> float | None:
    """Return the metric whose name ends with accuracy or acc; None without one, or with few examples."""
    examples = evaluation.get(_WEIGHT)
    if not isinstance(examples, int | float) or not _MIN_EXAMPLES <= examples <= _MAX_EXAMPLES:
        return None
    for key, value in evaluation.items():
        if key.lower().endswith(("accuracy", "acc")) and isinstance(value, int | float) and 0 <= value <= 1:
            return float(value)
    return None
