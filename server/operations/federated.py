"""What devices' own evaluations come to, taken together."""

import math
from collections.abc import Iterable, Mapping

from edgeflock.shared.protocol.messages import Facts

_PREFIX = "eval."
_WEIGHT = "eval.num-examples"

_MOST = 1 << 53
"""Examples that a device can have: of more, a number is no count."""


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
