"""Weighting rules: they turn what is known of an update, as its staleness, into a learning-rate factor.

A rule computes one weight for a whole update. It may also request AdaComp's division by the per-parameter
staleness. Rules compose by multiplication.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from edgeflock.server.descent.step import Step
from edgeflock.shared.plugins import Table


@dataclass(frozen=True, slots=True)
class Rule:
    weight: Callable[[Step, int], float]
    """(step, version it is applied at) -> factor of the learning rate. If several updates make a step,
    versions after the base are counted in steps. If n nodes train, they are counted in units of n updates."""
    per_parameter: bool = False
    """Whether the learning rate is also divided by max(1, sigma_k)."""


def full(step: Step, version: int) -> float:
    """1: every update counts alike."""
    return 1.0


def tau(step: Step, version: int) -> float:
    """1 / max(1, tau), tau = version - base: the staleness of the whole update.

    The rule of ASGD and Comp-ASGD in AdaComp's evaluation (section V b), after Zhang, Gupta, Lian and Liu,
    "Staleness-aware async-SGD", 2015.
    """
    return 1 / max(1, version - step.base)


def root(step: Step, version: int) -> float:
    """1 / sqrt(1 + tau): FedBuff's rule.

    J. Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022, section 5.
    """
    return 1 / math.sqrt(1 + version - step.base)


def batch_share(samples: int, base_batch: int) -> float:
    """Return b / B for b samples: the weight of an update, or of a round's rate (ScaDLES, section IV).

    Equation (4a) weighs device i by r_i = S_i / sum_j S_j. Linear scaling multiplies the learning rate of a
    round by sum_j S_j / B. Their product, S_i / B, does not depend on other devices. So it holds for a single
    update as in a round. 1 if B is 0.
    """
    return samples / base_batch if base_batch else 1.0


def rule_of(found: object) -> Rule | None:
    """Return a Rule from a Rule, an object with its attributes, or a function (step, version) -> factor."""
    if isinstance(found, Rule):
        return found
    weight = getattr(found, "weight", found)
    return Rule(weight, getattr(found, "per_parameter", False)) if callable(weight) else None


RULES: Table[Rule] = Table(
    "edgeflock.rules",
    {
        "adacomp": Rule(full, per_parameter=True),  # alpha / max(1, sigma_k), AdaComp's equation (5)
        "tau": Rule(tau),
        "sqrt": Rule(root),
        "none": Rule(full),
        "elastic": Rule(full),  # the step is alpha (x - centre): S. Zhang et al., 2015, equation 3
    },
    rule_of,
)
"""Rules by their name in settings and journals."""


def rule(name: str) -> Rule:
    """Return the rule that a regime names. Raises ConfigError for an unknown one, as in an old journal."""
    return RULES.lookup(name, "coordination.rule")
