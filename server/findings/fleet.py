"""Rules of a device against the others: how far it is from the median, in median absolute deviations.

Neither is moved by the few that are wrong. Of devices that hold one label each, all pull against all others,
and none more than the rest.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from edgeflock.server.findings.agreement import Seen
from edgeflock.server.findings.picture import Picture, Portrait
from edgeflock.server.findings.signs import Before, Sign

_ENOUGH = 30
"""Updates of a device that say something, and"""
_OTHERS = 4
"""devices of which each has as many: with three nobody can tell who of two is wrong."""

_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, of normal numbers."""

_AGAINST, _WITH = -5.0, -2.5
"""Deviations below the median agreement. Honest devices with one label each stay above -4 or so."""

_WORSE, _ALIKE = 3.0, 1.5
"""Deviations above the median loss: who is right about labels that others have, too, soon fits them. Alone it
says nothing, since data may be hard; with the direction it does."""

_LEAST_AGREEMENT, _LEAST_LOSS, _LEAST_NORM = 0.05, 0.25, 0.25
"""A deviation counts as this at least (of the median loss; of a logarithm): in a fleet whose devices are all
alike, the smallest difference would be many."""

_FAR, _NEAR = 6.0, 4.0
"""Deviations of the norms' logarithm, and"""
_TIMES = 5.0
"""so many times as large as the median, or as small."""

_ABSURD, _SOUND = 0.3, 0.1
"""Part of a device's updates whose running statistics are no batch's (agreement.py)."""

_STALE, _FRESH, _LEAST_LAG = 5.0, 3.0, 20.0
"""Times the fleet's median tau, and the least tau that is worth a word."""


def disagreeing(picture: Picture, before: Before) -> Iterator[Sign]:
    """Updates that go against the others', of data that the model does not come to fit."""
    judged = [(one, seen) for one, seen in _known(picture) if seen.agreement is not None]
    if len(judged) < _OTHERS:
        return
    agreements = [seen.agreement or 0.0 for _, seen in judged]
    losses = [0.0 if seen.loss is None else seen.loss for _, seen in judged]
    usual = median(losses)
    against = _deviations(agreements, _LEAST_AGREEMENT)
    worse = _deviations(losses, _LEAST_LOSS * abs(usual) or math.inf)
    for (one, _), agreement, loss, below, above in zip(
        judged, agreements, losses, against, worse, strict=True
    ):
        held = ("disagrees", one.name) in before
        if agreement < 0 and below <= (_WITH if held else _AGAINST) and above >= (_ALIKE if held else _WORSE):
            yield Sign(
                "disagrees", "warning", one.name,
                f"its updates point away from the others' (cosine {agreement:+.2f}, the median is "
                f"{median(agreements):+.2f}) and its loss is {loss:.3g} where {usual:.3g} is usual",
                "look at its labels and how it prepares its data; pause it meanwhile, or drop it",
            )  # fmt: skip


def out_of_line(picture: Picture, before: Before) -> Iterator[Sign]:
    """Updates much larger, or smaller, than those of the others."""
    judged = _known(picture)
    if len(judged) < _OTHERS:
        return
    norms = [seen.norm for _, seen in judged]
    for (one, _), norm, far in zip(judged, norms, _deviations(norms, _LEAST_NORM), strict=True):
        held = ("norm", one.name) in before
        times = math.exp(min(abs(norm - median(norms)), 700.0))
        told = f"{times:,.0f}" if 999.5 <= times < 1e9 else f"{times:.3g}"
        if abs(far) >= (_NEAR if held else _FAR) and times >= _TIMES:
            yield Sign(
                "norm", "warning", one.name,
                f"its updates are {told} times as {'large' if far > 0 else 'small'} as is usual here",
                "look at the scale of its inputs and targets",
            )  # fmt: skip


def absurd(picture: Picture, before: Before) -> Iterator[Sign]:
    """Running statistics that no batch has."""
    judged = _known(picture)
    if len(judged) < _OTHERS:
        return
    for one, seen in judged:
        if seen.absurd >= (_SOUND if ("statistics", one.name) in before else _ABSURD):
            yield Sign(
                "statistics", "warning", one.name,
                f"{seen.absurd:.0%} of its updates of late have means or variances far from the model's "
                "(BatchNorm's): they count as far as is usual, and no further",
                "look at the scale of its inputs, and at its client; drop it if it is not yours",
            )  # fmt: skip


def stale(picture: Picture, before: Before) -> Iterator[Sign]:
    """Updates that are always late."""
    judged = [(one, one.lag) for one in picture.devices if one.here and one.lag is not None]
    if len(judged) < _OTHERS:
        return
    usual = median(lag for _, lag in judged)
    for one, lag in judged:
        times = _FRESH if ("stale", one.name) in before else _STALE
        if lag >= max(times * usual, _LEAST_LAG):
            yield Sign(
                "stale", "notice", one.name,
                f"its updates are {lag:,.0f} versions late, the usual is {usual:,.0f}: they count less",
                "it is slow, or its line is: give it smaller batches or fewer local steps",
            )  # fmt: skip


def _known(picture: Picture) -> list[tuple[Portrait, Seen]]:
    """Those that are here and have sent enough."""
    return [
        (one, one.seen)
        for one in picture.devices
        if one.here and one.seen is not None and one.seen.updates >= _ENOUGH
    ]


def _deviations(numbers: Sequence[float], least: float) -> list[float]:
    """How far each is from the median, in deviations of `least` at least."""
    middle = median(numbers)
    deviation = max(_SIGMA * median(abs(number - middle) for number in numbers), least)
    return [(number - middle) / deviation for number in numbers]


RULES: tuple[Callable[[Picture, Before], Iterator[Sign]], ...] = (disagreeing, out_of_line, absurd, stale)
