"""coordination.rule = "squared": who is late counts for less than with tau."""

from edgeflock.server.descent import Step
from edgeflock.server.descent.weighting import Rule


def squared(step: Step, version: int) -> float:
    """1 / max(1, tau)^2, tau = version - base."""
    return 1 / max(1, version - step.base) ** 2


SQUARED = Rule(squared)
