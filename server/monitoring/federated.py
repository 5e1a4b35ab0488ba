"""What devices' own evaluations come to, taken together."""

import math
from collections.abc import Iterable, Mapping

from edgeflock.shared.protocol.messages import Facts

_PREFIX = "eval."
_WEIGHT = "eval.num-examples"

_MOST = 1 << 53
"""Examples that a device can have: of more, a number is no count."""

_FEW = 10
"""Of fewer examples, chance decides what is right."""


def federated(telemetry: Iterable[Facts]) -> Mapping[str, float] | None:
    """The means of the metrics that devices last told as eval.NAME, by their numbers of examples, and how
    many examples these are; None if none told any. A metric that some lack is the mean of the others; what
    comes to no finite number is left out.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for facts in telemetry:
        weight = facts.get(_WEIGHT)
        if not isinstance(weight, int | float) or not 0 < weight <= _MOST:
            continue
        for key, value in facts.items():
            if key.startswith(_PREFIX) and isinstance(value, int | float):
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0.0) + weight
    means = {key.removeprefix(_PREFIX): sums[key] / weights[key] for key in sums if key != _WEIGHT}
    finite = {key: mean for key, mean in means.items() if math.isfinite(mean)}
    return {**finite, "num-examples": weights[_WEIGHT]} if weights else None


def own_evaluation(facts: Facts) -> Facts:
    """What of it a device tells of its own evaluation."""
    return {key: value for key, value in facts.items() if key.startswith(_PREFIX)}


def own_accuracy(evaluation: Facts) -> float | None:
    """The metric of a name that ends with accuracy or acc; None without one, and of few examples."""
    examples = evaluation.get(_WEIGHT)
    if not isinstance(examples, int | float) or not _FEW <= examples <= _MOST:
        return None
    for key, value in evaluation.items():
        if key.lower().endswith(("accuracy", "acc")) and isinstance(value, int | float) and 0 <= value <= 1:
            return float(value)
    return None
