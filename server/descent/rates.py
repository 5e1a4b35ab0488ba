"""Learning-rate schedules, by the number of updates or by the time of the updates.

    constant   1
    cosine     (1 + cos(pi min(1, (t - warmup) / (period - warmup)))) / 2

The learning rate is multiplied by this factor, at least `least`. t is in updates, or in seconds since the
first update. While t < warmup, the factor is also multiplied by (t + 1) / (warmup + 1). The journal has the
time of each update. The code uses only IEEE 754 +, * and /, because cos differs between machines.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgeflock.shared.plugins import Table

if TYPE_CHECKING:
    from edgeflock.server.descent.regime import StepMethod

_TERMS = 12
"""Terms of the sine series. Up to pi / 2, further terms are below a double's precision."""
_HALF_PI = 1.5707963267948966


def rate_factor(method: "StepMethod", elapsed: float) -> float:
    """Return the factor of the learning rate at `elapsed` updates or seconds."""
    factor = max(method.least, SCHEDULES[method.schedule](method, elapsed))
    return factor * (elapsed + 1) / (method.warmup + 1) if elapsed < method.warmup else factor


def _constant(method: "StepMethod", elapsed: float) -> float:
    return 1.0


def _cosine(method: "StepMethod", elapsed: float) -> float:
    part = min(1.0, max(0.0, elapsed - method.warmup) / (method.period - method.warmup))
    sine = _sine(_HALF_PI * part)
    return 1 - sine * sine  # (1 + cos 2x) / 2


def _sine(x: float) -> float:
    term = total = x
    for n in range(1, _TERMS):
        term *= -x * x / ((2 * n) * (2 * n + 1))
        total += term
    return total


SCHEDULES: Table[Callable[["StepMethod", float], float]] = Table(
    "edgeflock.schedules",
    {"constant": _constant, "cosine": _cosine},
    lambda found: found if callable(found) else None,
)
"""Schedules by their name in `optimizer.schedule`."""
