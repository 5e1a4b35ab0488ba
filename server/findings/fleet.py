"""Rules that compare a device with the others: its distance from the median, in median absolute deviations.

A few wrong devices move neither the median nor the deviation. If devices hold one label each, all pull
against all others, and none more than the rest. Two more rules look for classes, and for
devices, that the model does not learn while it learns the others.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from edgeflock.server.findings.agreement import AgreementAverages
from edgeflock.server.findings.status import DeviceStatus, Rule, RunStatus, Sign, Subjects

_MIN_UPDATES, _MIN_DIRECTION = 30, 100
"""The updates after which a device's norm, and its direction, can be judged: the loss of labels that others
lack takes some updates to fall. And"""
MIN_DEVICES = 4
"""devices with this many updates each: with three nobody can decide which of two is wrong."""

_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, for a normal distribution."""

_AGAINST_BEGIN, _AGAINST_END = -5.0, -2.5
"""Deviations below the median agreement. Honest devices with one label each stay above about -4."""

WORSE_LOSS, _WORSE_END, _FALLEN_LOSS = 3.0, 1.5, 0.85
"""Deviations above the median loss, and the part of its highest that a loss has fallen to if the model fits
it. A device with right labels fits soon if others have them too, and later if not. A high loss alone says
nothing, since data may be hard. Together with the direction it does."""

_MAX_LOSS = 3.0
"""A loss above this many times the devices' median highest loss has not fallen. With inputs 255 times too
large a loss falls, too, but stays above what any other device ever had."""

_UNITED, _MIRRORED, _USUAL_LOSS, _USUAL_NORM = 0.15, 0.5, 1.0, 0.35
"""A device sends mirrored gradients if the median agreement is at least the first, and its own is at most
minus the second times that. Its loss and log norm are usual, within the third (in deviations) and the fourth.
"""

_MIN_AGREEMENT, MIN_LOSS, _MIN_NORM = 0.05, 0.25, 0.25
"""The least size of a deviation (of the agreement, the median loss, a logarithm). Without it the smallest
difference counts as many deviations where all devices are alike."""

_NORM_BEGIN, _NORM_END = 6.0, 4.0
"""Deviations of the norms' logarithm, and"""
_RATIO_BEGIN, _RATIO_END, _MAX_LOSS_RATIO = 10.0, 5.0, 5.0
"""the ratio to the median norm. It is multiplied by the ratio of the losses, up to the third: a device with
labels that others lack still learns, while others hardly do."""

_ABSURD_BEGIN, _ABSURD_END = 0.3, 0.1
"""Parts of a device's updates whose running statistics are absurd (agreement.py)."""

_STALE_BEGIN, _STALE_END, _MIN_LAG = 15.0, 10.0, 20.0
"""Multiples of the fleet's median tau, and the least tau that is reported. A fleet of two makes of devices,
one of them ten times as fast, is normal."""

_COMPUTES = 0.5
"""A device is slow if steps take more than this part of the time between updates, else its connection is."""


def find_disagreeing(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device's updates oppose the others', and the model does not fit its data.

    Or they are the opposite of the others', and the model fits its data as well as theirs.
    """
    judged = [
        (one, seen) for one, seen in active_devices(status, _MIN_DIRECTION) if seen.agreement is not None
    ]
    if len(judged) < MIN_DEVICES:
        return
    agreements = [seen.agreement or 0.0 for _, seen in judged]
    usual, united = median(seen.loss or 0.0 for _, seen in judged), median(agreements)
    peak = median(seen.peak or 0.0 for _, seen in judged)
    against = deviations(agreements, _MIN_AGREEMENT)
    worse = deviations([seen.excess for _, seen in judged], MIN_LOSS * abs(usual) or math.inf)
    for (one, seen), agreement, below, above in zip(judged, agreements, against, worse, strict=True):
        is_active = ("disagrees", one.name) in active
        if agreement >= 0 or below > (_AGAINST_END if is_active else _AGAINST_BEGIN):
            continue
        mirrored = united >= _UNITED and agreement <= -_MIRRORED * united
        mirrored = mirrored and abs(above) <= _USUAL_LOSS and abs(seen.norm) <= _USUAL_NORM
        if mirrored or (not _has_fallen(seen, peak) and above >= (_WORSE_END if is_active else WORSE_LOSS)):
            yield Sign(
                "disagrees", "warning", one.name,
                f"its updates point away from the others' (cosine {agreement:+.2f}, the median is "
                f"{united:+.2f}) and its loss is {seen.loss or 0.0:.3g} where {usual:.3g} is usual",
                "its gradients seem to have the wrong sign: look at its code; pause it meanwhile, or drop it"
                if mirrored
                else "check its labels and how it prepares its data; pause it meanwhile, or drop it",
            )  # fmt: skip


def _has_fallen(seen: AgreementAverages, usual_peak: float) -> bool:
    """Whether the device's loss has fallen well below its peak, and is not far above the usual peak."""
    if seen.loss is None or seen.peak is None:
        return False
    return seen.loss < _FALLEN_LOSS * seen.peak and seen.loss <= _MAX_LOSS * usual_peak


def find_norm(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device's updates are much larger or smaller than those of the others."""
    judged = active_devices(status, _MIN_UPDATES)
    if len(judged) < MIN_DEVICES:
        return
    norms, usual = [seen.norm for _, seen in judged], median(seen.loss or 0.0 for _, seen in judged)
    for (one, seen), norm, distance in zip(judged, norms, deviations(norms, _MIN_NORM), strict=True):
        is_active = ("norm", one.name) in active
        times = math.exp(min(abs(norm - median(norms)), 700.0))
        shown = f"{times:,.0f}" if 999.5 <= times < 1e9 else f"{times:.3g}"
        harder = seen.loss / usual if distance > 0 and usual > 0 and seen.loss is not None else 1.0
        minimum = (_RATIO_END if is_active else _RATIO_BEGIN) * min(max(harder, 1.0), _MAX_LOSS_RATIO)
        if abs(distance) >= (_NORM_END if is_active else _NORM_BEGIN) and times >= minimum:
            yield Sign(
                "norm", "warning", one.name,
                f"its updates are {shown} times as {'large' if distance > 0 else 'small'} as is usual here",
                "look at the scale of its inputs and targets",
            )  # fmt: skip


def find_absurd(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device sends running statistics that no batch has."""
    judged = active_devices(status, _MIN_UPDATES)
    if len(judged) < MIN_DEVICES:
        return
    for one, seen in judged:
        if seen.absurd_share >= (_ABSURD_END if ("statistics", one.name) in active else _ABSURD_BEGIN):
            yield Sign(
                "statistics", "warning", one.name,
                f"{seen.absurd_share:.0%} of its recent updates have means or variances far from the model's "
                "(BatchNorm's): they are clipped to the usual distance",
                "look at the scale of its inputs, and at its client; drop it if it is not yours",
            )  # fmt: skip


def find_stale(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The device's updates are always late."""
    judged = [(one, one.lag) for one in status.devices if one.present and one.lag is not None]
    if len(judged) < MIN_DEVICES:
        return
    usual = median(lag for _, lag in judged)
    for one, lag in judged:
        times = _STALE_END if ("stale", one.name) in active else _STALE_BEGIN
        if lag >= max(times * usual, _MIN_LAG):
            yield Sign(
                "stale", "notice", one.name,
                f"its updates are {lag:,.0f} versions late, the usual is {usual:,.0f}: they count less",
                _lag_remedy(one),
            )  # fmt: skip


def _lag_remedy(one: DeviceStatus) -> str:
    if one.step is None or not one.interval:
        return "it is slow, or its connection is: give it smaller batches or fewer local steps"
    times = f"it computes for {one.step:.2g} s of the {one.interval:.2g} s between two updates"
    if one.step >= _COMPUTES * one.interval:
        return f"its processor is slow, {times}: give it smaller batches or fewer local steps"
    return f"its connection is slow, {times}: give it a faster one, or make updates smaller (compression)"


def active_devices(status: RunStatus, updates: int) -> list[tuple[DeviceStatus, AgreementAverages]]:
    """Return the connected devices that have sent at least `updates` updates."""
    return [
        (one, one.averages)
        for one in status.devices
        if one.present and one.averages is not None and one.averages.updates >= updates
    ]


def deviations(numbers: Sequence[float], minimum: float) -> list[float]:
    """Return each number's distance from the median, in deviations of at least `minimum`."""
    middle = median(numbers)
    deviation = max(_SIGMA * median(abs(number - middle) for number in numbers), minimum)
    return [(number - middle) / deviation for number in numbers]


_EVALUATIONS, _UPDATES, _DEVICE_UPDATES = 10, 1000, 10
"""A lost class is reported after at least these evaluations, updates, and updates of each connected device:
the model learns some classes later than others."""
_MAX_NAMED, _HOLDER_UPDATES, _SLOW_RATIO = 10, 3, 2.0
"""The most classes that are named. The updates after which a device's loss can show that it holds them. The
multiple of the usual time between updates that is mentioned."""

_LOW_BEGIN, _LOW_END, _LEARNED, _MIN_OWN = 0.5, 0.6, 0.5, 3
"""Parts of the median accuracy of devices' own evaluations, if this is above the third. And the least
evaluations of a device: its first is of a model that knows nothing."""

_REMEDY = "let more devices have such data; docs/how-to/uneven-data.md says what else to try"


def find_lost_classes(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The model predicts nearly nothing of these classes rightly: the devices that hold them hardly count."""
    present = sum(one.present for one in status.devices)
    enough = max(_UPDATES, _DEVICE_UPDATES * present)
    found = {
        number: one
        for number, one in status.history.lost.items()
        if one.evaluations >= _EVALUATIONS and status.version - one.version >= enough
    }
    if status.state != "training" or not found:
        return
    names = [status.labels[n] if n < len(status.labels) else str(n) for n in found]
    several = len(found) > 1
    first, shown = next(iter(found.values())), names[:_MAX_NAMED] + ["..."] * (len(names) > _MAX_NAMED)
    yield Sign(
        "lost-class", "warning", None,
        f"the model hardly ever finds class{'es' * several} {', '.join(shown)}: at most "
        f"{max(one.recall for one in found.values()):.1%} of {'each' if several else 'it'} are right, "
        f"{first.other_recall:.1%} of the others" + _holder(status, "them" if several else "it"),
        _REMEDY,
    )  # fmt: skip


def find_lost_devices(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The model is right about the others' data, but not about this device's own."""
    judged = [
        (one, one.accuracy)
        for one in status.devices
        if one.present and one.accuracy is not None and one.evaluations >= _MIN_OWN
    ]
    if status.state != "training" or len(judged) < MIN_DEVICES:
        return
    usual = median(accuracy for _, accuracy in judged)
    for one, accuracy in judged:
        part = _LOW_END if ("lost-device", one.name) in active else _LOW_BEGIN
        if usual > _LEARNED and accuracy < part * usual:
            yield Sign(
                "lost-device", "warning", one.name,
                f"the model is right about {accuracy:.1%} of its own data, and {usual:.1%} is usual: it "
                "hardly counts, or its labels are wrong",
                f"look at its labels; if it is slow, {_REMEDY}",
            )  # fmt: skip


def _holder(status: RunStatus, classes: str) -> str:
    """Return a text on the device that seems to hold the lost classes: its loss is far above the others'."""
    judged = active_devices(status, _HOLDER_UPDATES)
    if len(judged) < MIN_DEVICES:
        return ""
    usual = median(seen.loss or 0.0 for _, seen in judged)
    distance = deviations([seen.excess for _, seen in judged], MIN_LOSS * abs(usual) or math.inf)
    highest = max(distance)
    one, seen = judged[distance.index(highest)]
    if highest < WORSE_LOSS:
        return ""
    pace = median(device.interval for device, _ in judged)
    slow = f", and it sends an update in {one.interval:.3g} s where {pace:.3g} s is usual"
    return (
        f"; {one.name} seems to hold {classes}: its loss is {seen.loss or 0.0:.3g} where {usual:.3g} is usual"
        f"{slow if pace > 0 and one.interval >= _SLOW_RATIO * pace else ''}"
    )


RULES: tuple[Rule, ...] = (
    find_disagreeing, find_norm, find_absurd, find_stale, find_lost_classes, find_lost_devices,
)  # fmt: skip
