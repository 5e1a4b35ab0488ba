"""Rules about classes and devices that the model does not learn, while it learns the others."""

import math
from collections.abc import Iterator
from statistics import median

from edgeflock.server.findings.fleet import MIN_DEVICES, MIN_LOSS, WORSE_LOSS, active_devices, deviations
from edgeflock.server.findings.status import Rule, RunStatus, Sign, Subjects

_EVALUATIONS, _UPDATES, _DEVICE_UPDATES = 10, 1000, 10
"""A lost class is reported after at least these evaluations, updates, and updates of each connected device:
the model learns some classes later than others."""
_MAX_NAMED, _MIN_UPDATES, _SLOW_RATIO = 10, 3, 2.0
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
    judged = active_devices(status, _MIN_UPDATES)
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


RULES: tuple[Rule, ...] = (find_lost_classes, find_lost_devices)
