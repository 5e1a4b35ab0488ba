"""What evaluations decide: when a run ends before it has its updates, and when its learning rate falls or its
model goes back.

A function of the evaluations in the journal and of the settings: after a restart it comes to the same.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from edgeflock.server.engine.steering.rising import Rising
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.coordination import ELASTIC

_SMALLEST = 1 / 64
"""The part of the configured learning rate below which the model goes back no more: then the rate is not what
is wrong.
"""


@dataclass(frozen=True, slots=True)
class Criteria:
    """When. What is 0 ends nothing."""

    accuracy: float = 0.0
    """Of an evaluation."""
    patience: int = 0
    """Evaluations in a row that are no better than the best one."""
    seconds: float = 0.0
    """Since the first update."""
    traffic: int = 0
    """Bytes to and from all devices."""
    lowers_after: int = 0
    """As patience, for the learning rate."""
    factor: float = 1.0
    """What it is multiplied with then."""
    least: float = 0.0
    """Below which it does not go then."""
    recovers_to: float = math.inf
    """The least learning rate with which the model goes back; infinite: it never does."""

    @classmethod
    def of(cls, config: Config) -> "Criteria":
        run, optimizer, rate = config.run, config.optimizer, config.coordination.learning_rate
        recovers = run.recover and config.coordination.mode != ELASTIC
        return cls(
            run.accuracy,
            run.patience,
            run.seconds,
            run.bytes,
            optimizer.patience if optimizer.schedule == "plateau" else 0,
            optimizer.factor,
            optimizer.least * rate,
            rate * _SMALLEST if recovers else math.inf,
        )


class EvaluationJudge:
    """Goes through the evaluations of a run, in order."""

    def __init__(self, criteria: Criteria, history: Iterable[Evaluation] = (), lowered: int = 0) -> None:
        """`lowered` is the version at which the learning rate was changed last."""
        self._criteria = criteria
        self._lowered = lowered
        self.best: Evaluation | None = None
        """The first of the best."""
        self._last: Evaluation | None = None
        self._since_best = self._since_lowered = 0
        self._rising = Rising()
        self._why: str | None = None
        """The run is over, whatever comes."""
        for evaluation in history:
            self.take(evaluation)

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether it is better than all before it: by its accuracy, or its loss where there is none."""
        if evaluation.loss is None:
            return False
        return self.best is None or _score(evaluation) > _score(self.best)

    def take(self, evaluation: Evaluation) -> None:
        """One more."""
        self._last = evaluation
        self._rising.take(evaluation)
        if evaluation.version <= self._lowered:  # with another rate: known of an earlier time of the server
            self._rising.begin_again()
        self._since_best += 1
        self._since_lowered += evaluation.version > self._lowered
        if self.is_best(evaluation):
            self.best = evaluation
            self._since_best = self._since_lowered = 0
        self._why = self._why or self._enough(evaluation)

    def _enough(self, evaluation: Evaluation) -> str | None:
        of = self._criteria
        if 0 < of.accuracy <= (evaluation.accuracy or 0.0):
            return f"it has reached an accuracy of {of.accuracy:g} (run.accuracy)"
        if self.best is not None and 0 < of.patience <= self._since_best:
            return (
                f"{of.patience} evaluations were no better than that of version {self.best.version} "
                "(run.patience)"
            )
        return None

    def lowered_rate(self, rate: float) -> float | None:
        """What the learning rate falls to, if it does."""
        after, lower = self._criteria.lowers_after, max(self._criteria.least, rate * self._criteria.factor)
        return lower if after and self._since_lowered >= after and lower < rate else None

    def recovery(self, rate: float) -> tuple[int, float] | None:
        """(The version to go back to, the learning rate from then on) of a run that goes by `rate`, once all
        that was learned is lost.
        """
        lower, best = rate / 2, self._rising.best
        if not self._rising.is_lost or lower < self._criteria.recovers_to:
            return None
        if self._last is None or self._last.version <= best:  # no update has made it worse
            return None
        return best, lower

    def changed_rate(self, version: int) -> None:
        """The learning rate is another one from `version` on, whoever changed it."""
        self._lowered, self._since_lowered = version, 0
        self._rising.begin_again()

    def ended_before(self, began: float | None) -> str | None:
        """Why the run was over with its last evaluation; None: it was not."""
        last = self._last
        return None if last is None else self.ended(began, last.time, last.ingress + last.egress)

    def ended(self, began: float | None, time: float, traffic: int) -> str | None:
        """Why the run is over whose first update came at `began`, if any, after so many bytes; None: it is
        not.
        """
        of, seconds = self._criteria, 0.0 if began is None else time - began
        if self._why is not None:
            return self._why
        if 0 < of.seconds <= seconds:
            return f"it has had its {of.seconds:g} seconds (run.seconds)"
        if 0 < of.traffic <= traffic:
            return f"it has had its {of.traffic} bytes (run.bytes)"
        return None


def _score(evaluation: Evaluation) -> float:
    if evaluation.accuracy is not None:
        return evaluation.accuracy
    assert evaluation.loss is not None, "it would not be the best"
    return -evaluation.loss
