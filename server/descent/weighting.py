"""How much an update counts: the rules behind the learning rate.

A rule weighs a whole update by a number, computed from what is known of it, and may ask for AdaComp's
division by each parameter's own staleness on top. Rules compose by multiplication.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from edgeflock.server.descent.step import Step
from edgeflock.shared.plugins import Table


@dataclass(frozen=True, slots=True)
class Rule:
    """A weighting rule."""

    weight: Callable[[Step, int], float]
    """(step, version it is applied at) -> factor of the learning rate. Where several updates make a step,
    versions after its base are counted by steps; where n nodes train by steps of their own, by n updates."""
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
    """1 / sqrt(1 + tau): FedBuff's (J. Nguyen et al., "Federated learning with buffered asynchronous
    aggregation", AISTATS 2022, section 5).
    """
    return 1 / math.sqrt(1 + version - step.base)


def stream_share(step: Step, base_batch: int) -> float:
    """b_i / B, for a step on b_i samples: how a device counts by what streams in (ScaDLES, section IV).

    Equation (4a) weighs device i by r_i = S_i / sum_j S_j and linear scaling multiplies the learning rate by
    sum_j S_j / B. The product, S_i / B, needs no other device: so it holds for an update that is applied
    alone just as in a round. 1 if B is 0.
    """
    return step.samples / base_batch if base_batch else 1.0


def linear_scaling(samples: int, base_batch: int) -> float:
    """gamma_scaled = sum_j S_j / B: how the learning rate grows with a round's samples (ScaDLES, section IV).

    1 if B is 0.
    """
    return samples / base_batch if base_batch else 1.0


def rule_of(found: object) -> Rule | None:
    """A Rule, or what has its attributes, or a function (step, version) -> factor alone."""
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
"""By name: the one place that says which there are. Settings and journals name them."""


def rule(name: str) -> Rule:
    """The rule that a regime names. Raises ConfigError if it is unknown, as one in an old journal may be."""
    return RULES.known(name, "coordination.rule")
