"""How much an update counts: weight rules, multiplied into the learning rate.

A rule maps (step, version, staleness) to a float32 weight per entry of the step, or one for all of it. Rules
compose by multiplication, so a run's rule may be a chain of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.admission import Step
from edgeflock.server.staleness import Staleness

Weight = NDArray[np.float32] | np.float32

_RECIPROCALS = (1 / np.maximum(1, np.arange(1 << 16))).astype(np.float32)
"""1 / max(1, n) for every staleness n that a window admits."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A weighting rule, and whether it reads the staleness of single parameters."""

    weight: Callable[[Step, int, Staleness | None], Weight]
    per_parameter: bool


def adacomp(step: Step, version: int, staleness: Staleness | None) -> Weight:
    """1 / max(1, sigma_k): AdaComp, equations (3) and (5)."""
    assert staleness is not None, "adacomp declares per_parameter"
    return _RECIPROCALS.take(staleness.sigma(step.where, step.base))


def tau(step: Step, version: int, staleness: Staleness | None) -> Weight:
    """1 / max(1, tau), tau = version - base, for the whole update.

    The rule of ASGD and Comp-ASGD in AdaComp's evaluation (section V b), after Zhang, Gupta, Lian and Liu,
    "Staleness-aware async-SGD", 2015.
    """
    return np.float32(1 / max(1, version - step.base))


def none(step: Step, version: int, staleness: Staleness | None) -> Weight:
    """1: plain asynchronous SGD."""
    return np.float32(1)


RULES: dict[str, Rule] = {
    "adacomp": Rule(adacomp, per_parameter=True),
    "tau": Rule(tau, per_parameter=False),
    "none": Rule(none, per_parameter=False),
}
