"""Rules about the run as a whole."""

from collections.abc import Callable, Iterator

from edgeflock.server.findings.picture import Picture
from edgeflock.server.findings.signs import Before, Sign
from edgeflock.server.findings.targets import REMEDY

_STALLED_SECONDS, _STALLED_PART, _STALLED_UPDATES = 900.0, 0.3, 1000
"""Seconds, part of the time since the first evaluation, and updates. A run stalls if its best evaluation is
longer ago than all three: longer runs have longer plateaus."""

_RISEN, _RISEN_OVER, _FALLEN, _FALLEN_OVER = 1.1, 1.05, 0.9, 1.0
"""The run overfits if the test loss is a tenth above its lowest, while the training loss is a tenth below its
value then. Noise and new data cause either alone."""

_RISING = 10
"""The least evaluations since the lowest test loss."""

_LEARNT, _EVALUATIONS, _UPDATES = 0.95, 20, 500
"""The run hardly learns if, after these evaluations and updates, neither the test loss nor the training loss
is below this part of its first value."""

_LITTLE, _ENOUGH, _NOTHING = 1 << 30, 3 << 29, 128 << 20
"""Free bytes on the disk. A journal of small models grows by the first in a day; the second ends the finding;
below the third, updates are about to stop."""

_SLOW, _QUICK = 0.25, 0.1
"""Seconds until updates are durable: every device waits for this at each step. Disks take milliseconds;
failing cards and network mounts take this long."""


def diverged(picture: Picture, before: Before) -> Iterator[Sign]:
    """The model has diverged, and no update is taken any more."""
    if (blamed := picture.diverged) is not None:
        yield Sign(
            "diverged", "critical", blamed.device, blamed.why,
            "roll back (R in edgeflock top, or edgeflock rollback), then lower the rate or drop the device",
        )  # fmt: skip


def unscaled(picture: Picture, before: Before) -> Iterator[Sign]:
    """The targets are not of the scale that models learn best."""
    if picture.state != "finished" and picture.targets is not None and (why := picture.targets.far):
        yield Sign("targets", "warning", None, why, REMEDY)


def stalled(picture: Picture, before: Before) -> Iterator[Sign]:
    """The best model is old."""
    course = picture.course
    if picture.state != "training" or course.best is None:
        return
    ago = picture.time - course.best.time
    long = max(_STALLED_SECONDS, _STALLED_PART * (picture.time - course.began))
    if ago >= long and picture.version - course.best.version >= _STALLED_UPDATES:
        yield Sign(
            "stalled", "notice", None,
            f"no evaluation was better than that of version {course.best.version:,}, {ago / 60:.0f} min ago",
            "lower the learning rate (optimizer.schedule = 'plateau' does), or end the run (run.patience)",
        )  # fmt: skip


def learning(picture: Picture, before: Before) -> Iterator[Sign]:
    """Neither the test loss nor the training loss falls."""
    course, (first, trained) = picture.course, picture.course.first
    lately, training = course.lately, course.training
    if picture.state != "training" or first is None or trained is None or lately is None or training is None:
        return
    if course.count < _EVALUATIONS or picture.version < _UPDATES or min(first, trained) <= 0:
        return
    if lately >= _LEARNT * first and training >= _LEARNT * min(first, trained):
        rises = lately > first / _LEARNT
        yield Sign(
            "learning", "warning", None,
            f"the model {'gets worse' if rises else 'hardly learns'}: after {picture.version:,} updates the "
            f"test loss is {lately:.4g}, it was {first:.4g} at first",
            f"{'lower' if rises else 'raise'} coordination.learning_rate, and look whether inputs are scaled "
            "and labels are right",
        )  # fmt: skip


def unevaluated(picture: Picture, before: Before) -> Iterator[Sign]:
    """The run has no held-out data to evaluate on."""
    if picture.state == "training" and not picture.evaluated:
        yield Sign(
            "unevaluated", "notice", None,
            "the run has no held-out data: nobody knows how good the model is, or whether it overfits",
            "name some at the next start (model.data), which no device trains on",
        )  # fmt: skip


def overfitting(picture: Picture, before: Before) -> Iterator[Sign]:
    """The test loss rises while the training loss falls, and the model has learned something."""
    course, lowest, lately = picture.course, picture.course.lowest, picture.course.lately
    if lowest is None or lately is None or course.training is None or course.since_lowest < _RISING:
        return
    if course.lost:
        return  # the test loss rises by classes that the most active devices lack
    first, trained = course.first
    if (first is not None and lowest.loss > first) or (trained is not None and course.training > trained):
        return  # the training loss recovers after a learning rate that was too high
    held = ("overfitting", None) in before
    risen, fallen = (_RISEN_OVER, _FALLEN_OVER) if held else (_RISEN, _FALLEN)
    if lately >= risen * lowest.loss > 0 and course.training <= fallen * lowest.training:
        yield Sign(
            "overfitting", "warning", None,
            f"the test loss is {lately:.4g}, {lately / lowest.loss:.2f} times that at version "
            f"{lowest.version:,}; the training loss fell from {lowest.training:.4g} to {course.training:.4g}",
            "use the best model so far (best.safetensors), or add data, weight decay or dropout",
        )  # fmt: skip


def disk(picture: Picture, before: Before) -> Iterator[Sign]:
    """The disk of the journal has little room."""
    if picture.free is not None and picture.free < (_ENOUGH if ("disk", None) in before else _LITTLE):
        yield Sign(
            "disk", "critical" if picture.free < _NOTHING else "warning", None,
            f"the disk of run.directory has {picture.free >> 20:,} MiB left; without room no update is taken",
            "make room, or set run.keep_updates = false for the next start",
        )  # fmt: skip


def journal(picture: Picture, before: Before) -> Iterator[Sign]:
    """The journal's disk is slow, and every device waits for it."""
    if picture.commit >= (_QUICK if ("journal", None) in before else _SLOW):
        yield Sign(
            "journal", "warning", None,
            f"updates are durable only after {picture.commit * 1000:,.0f} ms, and devices wait for it",
            "put run.directory on a local disk, an SSD, and look what else writes to it",
        )  # fmt: skip


RULES: tuple[Callable[[Picture, Before], Iterator[Sign]], ...] = (
    diverged, unscaled, unevaluated, learning, stalled, overfitting, disk, journal,
)  # fmt: skip
