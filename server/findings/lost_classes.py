"""Rules about classes and devices that the model does not learn, while it learns the others."""

import math
from collections.abc import Callable, Iterator
from statistics import median

from edgeflock.server.findings.fleet import LEAST_LOSS, OTHERS, WORSE, deviations, known
from edgeflock.server.findings.picture import Picture
from edgeflock.server.findings.signs import Before, Sign

_EVALUATIONS, _UPDATES, _EACH = 10, 1000, 10
"""A lost class is reported after at least these evaluations, updates, and updates of each connected device:
the model learns some classes later than others."""
_NAMED, _FEW, _SLOWER = 10, 3, 2.0
"""The most classes that are named. The updates after which a device's loss can show that it holds them. The
multiple of the usual time between updates that is mentioned."""

_BEHIND, _CAUGHT_UP, _LEARNED, _JUDGED = 0.5, 0.6, 0.5, 3
"""Parts of the median accuracy of devices' own evaluations, if this is above the third. And the least
evaluations of a device: its first is of a model that knows nothing."""

_REMEDY = "let more devices have such data; docs/how-to/uneven-data.md says what else to try"


def lost_class(picture: Picture, before: Before) -> Iterator[Sign]:
    """The model predicts nearly nothing of these classes rightly: the devices that hold them hardly count."""
    here = sum(one.here for one in picture.devices)
    enough = max(_UPDATES, _EACH * here)
    found = {
        number: one
        for number, one in picture.course.lost.items()
        if one.evaluations >= _EVALUATIONS and picture.version - one.version >= enough
    }
    if picture.state != "training" or not found:
        return
    names = [picture.labels[n] if n < len(picture.labels) else str(n) for n in found]
    several = len(found) > 1
    first, shown = next(iter(found.values())), names[:_NAMED] + ["..."] * (len(names) > _NAMED)
    yield Sign(
        "lost-class", "warning", None,
        f"the model hardly ever finds class{'es' * several} {', '.join(shown)}: at most "
        f"{max(one.right for one in found.values()):.1%} of {'each' if several else 'it'} are right, "
        f"{first.others:.1%} of the others" + _holder(picture, "them" if several else "it"),
        _REMEDY,
    )  # fmt: skip


def lost_device(picture: Picture, before: Before) -> Iterator[Sign]:
    """The model is right about the others' data, but not about this device's own."""
    judged = [
        (one, one.accuracy)
        for one in picture.devices
        if one.here and one.accuracy is not None and one.evaluations >= _JUDGED
    ]
    if picture.state != "training" or len(judged) < OTHERS:
        return
    usual = median(accuracy for _, accuracy in judged)
    for one, accuracy in judged:
        part = _CAUGHT_UP if ("lost-device", one.name) in before else _BEHIND
        if usual > _LEARNED and accuracy < part * usual:
            yield Sign(
                "lost-device", "warning", one.name,
                f"the model is right about {accuracy:.1%} of its own data, and {usual:.1%} is usual: it "
                "hardly counts, or its labels are wrong",
                f"look at its labels; if it is slow, {_REMEDY}",
            )  # fmt: skip


def _holder(picture: Picture, what: str) -> str:
    """Return a text on the device that seems to hold the lost classes: its loss is far above the others'."""
    judged = known(picture, _FEW)
    if len(judged) < OTHERS:
        return ""
    usual = median(seen.loss or 0.0 for _, seen in judged)
    far = deviations([seen.excess for _, seen in judged], LEAST_LOSS * abs(usual) or math.inf)
    most = max(far)
    one, seen = judged[far.index(most)]
    if most < WORSE:
        return ""
    pace = median(device.interval for device, _ in judged)
    slow = f", and it sends an update in {one.interval:.3g} s where {pace:.3g} s is usual"
    return (
        f"; {one.name} seems to hold {what}: its loss is {seen.loss or 0.0:.3g} where {usual:.3g} is usual"
        f"{slow if pace > 0 and one.interval >= _SLOWER * pace else ''}"
    )


RULES: tuple[Callable[[Picture, Before], Iterator[Sign]], ...] = (lost_class, lost_device)
