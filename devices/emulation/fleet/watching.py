"""The findings of an emulated fleet. They are a server's findings by the virtual clock, without a disk."""

from collections.abc import Iterable

from edgeflock.server.coordination import Push
from edgeflock.server.descent import Step
from edgeflock.server.findings import (
    EVERY,
    AgreementTracker,
    Diagnosis,
    Divergence,
    EvaluationHistory,
    Picture,
    Targets,
    changes,
    diagnose,
)
from edgeflock.server.monitoring.portraits import Portraits, usual_loss
from edgeflock.server.roster import Device
from edgeflock.shared.protocol.frames import Evaluation, Finding


class Watch:
    """Looks for findings of one run."""

    def __init__(self, parameters: int, targets: Targets | None = None, labels: tuple[str, ...] = ()) -> None:
        """`parameters` is the size of the model. `targets` are regression targets that are not scaled.
        `labels` are the names of the classes.
        """
        self._labels = labels
        self._agreement = AgreementTracker(parameters)
        self._portraits, self._targets = Portraits(self._agreement.of), targets
        self._course, self._diagnosis = EvaluationHistory(), Diagnosis()
        self._looked = 0.0
        """The virtual second of the last look."""

    def observe(self, push: Push, step: Step) -> None:
        """Record an admitted update."""
        self._agreement.observe(push.device, push.update.loss, step)

    def evaluated(self, evaluation: Evaluation, devices: Iterable[Device]) -> None:
        """Record an evaluation of the model, and the devices' usual loss by then."""
        self._course = self._course.after(evaluation, usual_loss(devices))

    def look(
        self, now: float, version: int, devices: Iterable[Device], *, diverged: bool = False
    ) -> Iterable[Finding]:
        """Return new findings every EVERY virtual seconds, and at once if the model has diverged."""
        if now < self._looked + EVERY and not diverged:
            return ()
        self._looked = now
        picture = Picture(
            now,
            version,
            "diverged" if diverged else "training",
            Divergence("the loss is no number", None) if diverged else None,
            self._course,
            devices=tuple(self._portraits.of(device, now, now) for device in devices),
            targets=self._targets,
            labels=self._labels,
        )
        before, self._diagnosis = self._diagnosis, diagnose(picture, self._diagnosis)
        return changes(before.findings, self._diagnosis.findings).began
