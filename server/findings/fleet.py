"""Rules that compare a device with the others: its distance from the median, in median absolute deviations.

A few wrong devices move neither the median nor the deviation. If devices hold one label each, all pull
against all others, and none more than the rest.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from edgeflock.server.findings.agreement import AgreementAverages
from edgeflock.server.findings.picture import Picture, Portrait
from edgeflock.server.findings.signs import Before, Sign

_ENOUGH, _MANY = 30, 100
"""The updates after which a device's norm, and its direction, can be judged: the loss of labels that others
lack takes some updates to fall. And"""
OTHERS = 4
"""devices with this many updates each: with three nobody can decide which of two is wrong."""

_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, for a normal distribution."""

_AGAINST, _WITH = -5.0, -2.5
"""Deviations below the median agreement. Honest devices with one label each stay above about -4."""

WORSE, _ALIKE, _FALLEN = 3.0, 1.5, 0.85
"""Deviations above the median loss, and the part of its highest that a loss has fallen to if the model fits
it. A device with right labels fits soon if others have them too, and later if not. A high loss alone says
nothing, since data may be hard. Together with the direction it does."""

_UNITED, _MIRRORED, _USUAL, _AS_LARGE = 0.15, 0.5, 1.0, 0.35
"""A device sends mirrored gradients if the median agreement is at least the first, and its own is at most
minus the second times that. Its loss and log norm are usual, within the third (in deviations) and the fourth.
"""

_LEAST_AGREEMENT, LEAST_LOSS, _LEAST_NORM = 0.05, 0.25, 0.25
"""The least size of a deviation (of the agreement, the median loss, a logarithm). Without it the smallest
difference counts as many deviations where all devices are alike."""

_FAR, _NEAR = 6.0, 4.0
"""Deviations of the norms' logarithm, and"""
_TIMES, _STILL, _AT_MOST = 10.0, 5.0, 5.0
"""the ratio to the median norm. It is multiplied by the ratio of the losses, up to the third: a device with
labels that others lack still learns, while others hardly do."""

_ABSURD, _SOUND = 0.3, 0.1
"""Parts of a device's updates whose running statistics are absurd (agreement.py)."""

_STALE, _FRESH, _LEAST_LAG = 15.0, 10.0, 20.0
"""Multiples of the fleet's median tau, and the least tau that is reported. A fleet of two makes of devices,
one of them ten times as fast, is normal."""

_COMPUTES = 0.5
"""A device is slow if steps take more than this part of the time between updates, else its line is."""


def disagreeing(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device's updates oppose the others', and the model does not fit its data; or they are the opposite
    of the others', and the model fits its data as well as theirs.
    """
    judged = [(one, seen) for one, seen in known(picture, _MANY) if seen.agreement is not None]
    if len(judged) < OTHERS:
        return
    agreements = [seen.agreement or 0.0 for _, seen in judged]
    usual, united = median(seen.loss or 0.0 for _, seen in judged), median(agreements)
    against = deviations(agreements, _LEAST_AGREEMENT)
    worse = deviations([seen.excess for _, seen in judged], LEAST_LOSS * abs(usual) or math.inf)
    for (one, seen), agreement, below, above in zip(judged, agreements, against, worse, strict=True):
        held = ("disagrees", one.name) in before
        if agreement >= 0 or below > (_WITH if held else _AGAINST):
            continue
        mirrored = united >= _UNITED and agreement <= -_MIRRORED * united
        mirrored = mirrored and abs(above) <= _USUAL and abs(seen.norm) <= _AS_LARGE
        if mirrored or (not _falls(seen) and above >= (_ALIKE if held else WORSE)):
            yield Sign(
                "disagrees", "warning", one.name,
                f"its updates point away from the others' (cosine {agreement:+.2f}, the median is "
                f"{united:+.2f}) and its loss is {seen.loss or 0.0:.3g} where {usual:.3g} is usual",
                "its gradients seem to have the wrong sign: look at its code; pause it meanwhile, or drop it"
                if mirrored
                else "look at its labels and how it prepares its data; pause it meanwhile, or drop it",
            )  # fmt: skip


def _falls(seen: AgreementAverages) -> bool:
    """Whether the device's loss has fallen well below its peak."""
    return seen.loss is not None and seen.peak is not None and seen.loss < _FALLEN * seen.peak


def out_of_line(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device's updates are much larger or smaller than those of the others."""
    judged = known(picture, _ENOUGH)
    if len(judged) < OTHERS:
        return
    norms, usual = [seen.norm for _, seen in judged], median(seen.loss or 0.0 for _, seen in judged)
    for (one, seen), norm, far in zip(judged, norms, deviations(norms, _LEAST_NORM), strict=True):
        held = ("norm", one.name) in before
        times = math.exp(min(abs(norm - median(norms)), 700.0))
        told = f"{times:,.0f}" if 999.5 <= times < 1e9 else f"{times:.3g}"
        harder = seen.loss / usual if far > 0 and usual > 0 and seen.loss is not None else 1.0
        least = (_STILL if held else _TIMES) * min(max(harder, 1.0), _AT_MOST)
        if abs(far) >= (_NEAR if held else _FAR) and times >= least:
            yield Sign(
                "norm", "warning", one.name,
                f"its updates are {told} times as {'large' if far > 0 else 'small'} as is usual here",
                "look at the scale of its inputs and targets",
            )  # fmt: skip


def absurd(picture: Picture, before: Before) -> Iterator[Sign]:
    """The device sends running statistics that no batch has."""
    judged = known(picture, _ENOUGH)
    if len(judged) < OTHERS:
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
    """The device's updates are always late."""
    judged = [(one, one.lag) for one in picture.devices if one.here and one.lag is not None]
    if len(judged) < OTHERS:
        return
    usual = median(lag for _, lag in judged)
    for one, lag in judged:
        times = _FRESH if ("stale", one.name) in before else _STALE
        if lag >= max(times * usual, _LEAST_LAG):
            yield Sign(
                "stale", "notice", one.name,
                f"its updates are {lag:,.0f} versions late, the usual is {usual:,.0f}: they count less",
                _why_late(one),
            )  # fmt: skip


def _why_late(one: Portrait) -> str:
    if one.step is None or not one.interval:
        return "it is slow, or its line is: give it smaller batches or fewer local steps"
    times = f"it computes for {one.step:.2g} s of the {one.interval:.2g} s between two updates"
    if one.step >= _COMPUTES * one.interval:
        return f"its processor is slow, {times}: give it smaller batches or fewer local steps"
    return f"its line is slow, {times}: give it a faster one, or let updates be smaller (compression)"


def known(picture: Picture, updates: int) -> list[tuple[Portrait, AgreementAverages]]:
    """Return the connected devices that have sent at least `updates` updates."""
    return [
        (one, one.seen)
        for one in picture.devices
        if one.here and one.seen is not None and one.seen.updates >= updates
    ]


def deviations(numbers: Sequence[float], least: float) -> list[float]:
    """Return each number's distance from the median, in deviations of at least `least`."""
    middle = median(numbers)
    deviation = max(_SIGMA * median(abs(number - middle) for number in numbers), least)
    return [(number - middle) / deviation for number in numbers]


RULES: tuple[Callable[[Picture, Before], Iterator[Sign]], ...] = (disagreeing, out_of_line, absurd, stale)
