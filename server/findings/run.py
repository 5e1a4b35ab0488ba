"""Rules about the run as a whole."""

from collections.abc import Iterator

from edgeflock.server.findings.status import REMEDY, Rule, RunStatus, Sign, Subjects

_STALLED_SECONDS, _STALLED_PART, _STALLED_UPDATES = 900.0, 0.3, 1000
"""Seconds, part of the time since the first evaluation, and updates. A run stalls if its best evaluation is
longer ago than all three: longer runs have longer plateaus."""

_RISE_BEGIN, _RISE_END, _FALL_BEGIN, _FALL_END = 1.1, 1.05, 0.9, 1.0
"""The run overfits if the test loss is a tenth above its lowest, while the training loss is a tenth below its
value then. Noise and new data cause either alone."""

_MIN_RISING = 10
"""The least evaluations since the lowest test loss."""

_LEARNED, _EVALUATIONS, _UPDATES = 0.95, 20, 500
"""The run hardly learns if, after these evaluations and updates, neither the test loss nor the training loss
is below this part of its first value."""

_DISK_BEGIN, _DISK_END, _DISK_CRITICAL = 1 << 30, 3 << 29, 128 << 20
"""Free bytes on the disk. A journal of small models grows by the first in a day; the second ends the finding;
below the third, updates are about to stop."""

_SLOW_BEGIN, _SLOW_END = 0.25, 0.1
"""Seconds until updates are durable: every device waits for this at each step. Disks take milliseconds;
failing cards and network mounts take this long."""


def find_diverged(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The model has diverged, and no update is taken any more."""
    if (divergence := status.divergence) is not None:
        yield Sign(
            "diverged", "critical", divergence.device, divergence.reason,
            "roll back (R in edgeflock top, or edgeflock rollback), then lower the rate or drop the device",
        )  # fmt: skip


def find_unscaled(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The targets are not of the scale that models learn best."""
    if status.state != "finished" and status.targets is not None and (problem := status.targets.problem):
        yield Sign("targets", "warning", None, problem, REMEDY)


def find_stalled(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The best model is old."""
    history = status.history
    if status.state != "training" or history.best is None:
        return
    age = status.time - history.best.time
    limit = max(_STALLED_SECONDS, _STALLED_PART * (status.time - history.start))
    if age >= limit and status.version - history.best.version >= _STALLED_UPDATES:
        yield Sign(
            "stalled", "notice", None,
            f"no evaluation was better than that of version {history.best.version:,}, {age / 60:.0f} min ago",
            "lower the learning rate (optimizer.schedule = 'cosine' does), or end the run (end.patience)",
        )  # fmt: skip


def find_learning(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """Neither the test loss nor the training loss falls."""
    history, (first, trained) = status.history, status.history.first
    test_loss, training_loss = history.test_loss, history.training_loss
    if (
        status.state != "training"
        or first is None
        or trained is None
        or test_loss is None
        or training_loss is None
    ):
        return
    if history.count < _EVALUATIONS or status.version < _UPDATES or min(first, trained) <= 0:
        return
    if test_loss >= _LEARNED * first and training_loss >= _LEARNED * min(first, trained):
        rises = test_loss > first / _LEARNED
        yield Sign(
            "learning", "warning", None,
            f"the model {'gets worse' if rises else 'hardly learns'}: after {status.version:,} updates the "
            f"test loss is {test_loss:.4g}, it was {first:.4g} at first",
            f"{'lower' if rises else 'raise'} coordination.learning_rate, and check that inputs are "
            "scaled and labels are right",
        )  # fmt: skip


def find_unevaluated(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The run has no held-out data to evaluate on."""
    if status.state == "training" and not status.is_evaluated:
        yield Sign(
            "unevaluated", "notice", None,
            "the run has no held-out data: it cannot measure how good the model is, or whether it overfits",
            "set model.data to data that no device trains on, at the next start",
        )  # fmt: skip


def find_overfitting(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The test loss rises while the training loss falls, and the model has learned something."""
    history, lowest, test_loss = status.history, status.history.lowest, status.history.test_loss
    if (
        lowest is None
        or test_loss is None
        or history.training_loss is None
        or history.lowest_age < _MIN_RISING
    ):
        return
    if history.lost:
        return  # the test loss rises by classes that the most active devices lack
    first, trained = history.first
    if (first is not None and lowest.loss > first) or (
        trained is not None and history.training_loss > trained
    ):
        return  # the training loss recovers after a learning rate that was too high
    is_active = ("overfitting", None) in active
    risen, fallen = (_RISE_END, _FALL_END) if is_active else (_RISE_BEGIN, _FALL_BEGIN)
    if test_loss >= risen * lowest.loss > 0 and history.training_loss <= fallen * lowest.training_loss:
        yield Sign(
            "overfitting", "warning", None,
            f"the test loss is {test_loss:.4g}, {test_loss / lowest.loss:.2f} times that at version "
            f"{lowest.version:,}; the training loss fell from {lowest.training_loss:.4g} to "
            f"{history.training_loss:.4g}",
            "use the best model so far (best.safetensors), or add data, weight decay or dropout",
        )  # fmt: skip


def find_full_disk(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The disk of the journal has little room."""
    if status.free_bytes is not None and status.free_bytes < (
        _DISK_END if ("disk", None) in active else _DISK_BEGIN
    ):
        yield Sign(
            "disk", "critical" if status.free_bytes < _DISK_CRITICAL else "warning", None,
            f"the disk of server.directory has {status.free_bytes >> 20:,} MiB free; a full one ends the run",
            "make room, or set journal.keep_updates = false for the next start",
        )  # fmt: skip


def find_slow_journal(status: RunStatus, active: Subjects) -> Iterator[Sign]:
    """The journal's disk is slow, and every device waits for it."""
    if status.commit_seconds >= (_SLOW_END if ("journal", None) in active else _SLOW_BEGIN):
        yield Sign(
            "journal", "warning", None,
            f"updates are durable only after {status.commit_seconds * 1000:,.0f} ms, and devices wait for it",
            "put server.directory on a local SSD, and check what else writes to it",
        )  # fmt: skip


RULES: tuple[Rule, ...] = (
    find_diverged, find_unscaled, find_unevaluated, find_learning, find_stalled, find_overfitting,
    find_full_disk, find_slow_journal,
)  # fmt: skip
