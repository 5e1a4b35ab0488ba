"""The learning rate as a function of how far the run is: by updates, or by the time of its updates.

    constant   1
    step       factor^floor(t / period)
    cosine     (1 + cos(pi min(1, (t - warmup) / (period - warmup)))) / 2
    plateau    1: the rate itself is lowered, as a regime of its own, once evaluations get no better

times the learning rate, t in updates or in seconds since the first one; no less than `least`; and while
t < warmup times (t + 1) / (warmup + 1). The time of an update is in the journal. Additions, multiplications
and divisions only, each as IEEE 754 has it: no machine's cos or pow is another one's.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgeflock.shared.plugins import Table

if TYPE_CHECKING:
    from edgeflock.server.descent.method import StepMethod

_TERMS = 12
"""Of sine's series up to pi / 2: what follows is less than a double's last digit."""
_HALF_PI = 1.5707963267948966

_MOST_STEPS = 1e18
"""No factor is told from 0 by then; of the shortest periods there would be infinitely many."""


def factor_at(how: "StepMethod", at: float) -> float:
    """What the learning rate is multiplied with at `at` updates, or seconds."""
    factor = max(how.least, SCHEDULES[how.schedule](how, at))
    return factor * (at + 1) / (how.warmup + 1) if at < how.warmup else factor


def _constant(how: "StepMethod", at: float) -> float:
    return 1.0


def _step(how: "StepMethod", at: float) -> float:
    return power(how.factor, int(min(at // how.period, _MOST_STEPS)))


def _cosine(how: "StepMethod", at: float) -> float:
    part = min(1.0, max(0.0, at - how.warmup) / (how.period - how.warmup))
    sine = _sine(_HALF_PI * part)
    return 1 - sine * sine  # (1 + cos 2x) / 2


def power(base: float, exponent: int) -> float:
    """base^exponent for 0 < base < 1 by repeated squaring."""
    result = 1.0
    while exponent and base:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result if not exponent else 0.0


def _sine(x: float) -> float:
    term = total = x
    for n in range(1, _TERMS):
        term *= -x * x / ((2 * n) * (2 * n + 1))
        total += term
    return total


SCHEDULES: Table[Callable[["StepMethod", float], float]] = Table(
    "edgeflock.schedules",
    {"constant": _constant, "step": _step, "cosine": _cosine, "plateau": _constant},
    lambda found: found if callable(found) else None,
)
"""By the name that `optimizer.schedule` gives them."""
