"""What is found of a fleet, as a server finds it: by the virtual clock, of a disk that is never full."""

from collections.abc import Iterable

from edgeflock.server.coordination import Push
from edgeflock.server.descent import Step
from edgeflock.server.engine import Accepted
from edgeflock.server.findings import (
    EVERY,
    Agreement,
    Blamed,
    Course,
    Diagnosis,
    Picture,
    Targets,
    changes,
    diagnose,
)
from edgeflock.server.operations.portraits import Portraits
from edgeflock.server.roster import Device
from edgeflock.server.roster.hub import Counters
from edgeflock.shared.protocol.frames import Evaluation, Finding


class Watch:
    """That of one run."""

    def __init__(self, parameters: int, targets: Targets | None = None) -> None:
        """Of a model with so many; `targets` are the numbers to predict, if they are not scaled."""
        self._agreement = Agreement(parameters)
        self._portraits, self._targets = Portraits(self._agreement.of), targets
        self._course, self._tally, self._diagnosis = Course(), Counters(), Diagnosis()
        self._looked = 0.0
        """When, in virtual seconds."""

    def observe(self, push: Push, step: Step) -> None:
        """An update that was admitted."""
        self._agreement.observe(push.device, push.update.loss, step)

    def count(self, push: Push, accepted: Accepted) -> None:
        """One that is in the model."""
        self._tally.count(push.update, accepted.staleness)

    def evaluated(self, evaluation: Evaluation) -> None:
        """How the model does."""
        self._course = self._course.after(evaluation, self._tally.loss)

    def look(
        self, now: float, version: int, devices: Iterable[Device], *, diverged: bool = False
    ) -> Iterable[Finding]:
        """What was not found before, every few virtual seconds, and once the model has diverged."""
        if now < self._looked + EVERY and not diverged:
            return ()
        self._looked = now
        picture = Picture(
            now,
            version,
            "diverged" if diverged else "training",
            Blamed("the loss is no number", None) if diverged else None,
            self._course,
            devices=tuple(self._portraits.of(device, now, now) for device in devices),
            targets=self._targets,
        )
        before, self._diagnosis = self._diagnosis, diagnose(picture, self._diagnosis)
        return changes(before.findings, self._diagnosis.findings).began
