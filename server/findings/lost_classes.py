"""Rules of classes and devices that the model does not learn, while it learns the others."""

import math
from collections.abc import Callable, Iterator
from statistics import median

from edgeflock.server.findings.fleet import LEAST_LOSS, OTHERS, WORSE, deviations, known
from edgeflock.server.findings.picture import Picture
from edgeflock.server.findings.signs import Before, Sign

_EVALUATIONS, _UPDATES, _EACH = 10, 1000, 10
"""A class is lost for so many evaluations and updates at least, and so many updates of each device that is
there: some classes are learned later than others."""
_NAMED, _FEW, _SLOWER = 10, 3, 2.0
"""Classes that are named; updates of a device whose loss says that it holds them; times the usual time
between two updates, from which on that is worth a word."""

_BEHIND, _CAUGHT_UP, _LEARNED, _JUDGED = 0.5, 0.6, 0.5, 3
"""Part of the median accuracy of devices' own evaluations, if that is above the third; and how often a device
has evaluated: its first evaluation is of a model that knows nothing."""

_REMEDY = "let more devices have such data; docs/how-to/uneven-data.md says what else to try"


def lost_class(picture: Picture, before: Before) -> Iterator[Sign]:
    """Classes of which nearly nothing is right: who holds them hardly counts."""
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
    """The model is right about the others' data, and not about a device's own."""
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
    """Who seems to hold what the model does not learn: the device whose loss is far above the others'."""
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
