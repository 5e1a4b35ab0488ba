"""The findings of an emulated fleet. They are a server's findings by the virtual clock, without a disk."""

from collections.abc import Iterable

from edgeflock.server.coordination import Push
from edgeflock.server.descent import Step
from edgeflock.server.findings import (
    INTERVAL,
    AgreementTracker,
    Diagnosis,
    Divergence,
    EvaluationHistory,
    RunStatus,
    Targets,
    diagnose,
)
from edgeflock.server.monitoring.device_status import DeviceStatuses, usual_loss
from edgeflock.server.roster import Device
from edgeflock.shared.protocol.frames import Evaluation, Finding


class Watch:
    """Looks for findings of one run."""

    def __init__(self, parameters: int, targets: Targets | None = None, labels: tuple[str, ...] = ()) -> None:
        """`parameters` is the size of the model.

        `targets` are regression targets that are not scaled. `labels` are the names of the classes.
        """
        self._labels = labels
        self._agreement = AgreementTracker(parameters)
        self._statuses, self._targets = DeviceStatuses(self._agreement.averages), targets
        self._history, self._diagnosis = EvaluationHistory(), Diagnosis()
        self._last_look = 0.0
        """The virtual second of the last look."""

    def observe(self, push: Push, step: Step) -> None:
        """Record an admitted update."""
        self._agreement.observe(push.device, push.update.loss, step)

    def record_evaluation(self, evaluation: Evaluation, devices: Iterable[Device]) -> None:
        """Record an evaluation of the model, and the devices' usual loss by then."""
        self._history = self._history.with_evaluation(evaluation, usual_loss(devices))

    def new_findings(
        self, now: float, version: int, devices: Iterable[Device], *, diverged: bool = False
    ) -> Iterable[Finding]:
        """Return new findings every EVERY virtual seconds, and at once if the model has diverged."""
        if now < self._last_look + INTERVAL and not diverged:
            return ()
        self._last_look = now
        status = RunStatus(
            now,
            version,
            "diverged" if diverged else "training",
            Divergence("the loss is no number", None) if diverged else None,
            self._history,
            devices=tuple(self._statuses.status(device, now, now) for device in devices),
            targets=self._targets,
            labels=self._labels,
        )
        self._diagnosis = diagnose(status, self._diagnosis)
        return self._diagnosis.began
