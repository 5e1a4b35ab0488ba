"""Decisions by evaluations: when a run ends early, and when its model goes back.

They depend only on the evaluations in the journal and on the settings, so a restart does not change them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from edgeflock.server.descent import Parameters
from edgeflock.server.engine.outcomes import Published
from edgeflock.shared.errors import RunComplete, RunDiverged
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config


class RunLifecycle:
    """The lifecycle of one run. It takes updates until it has enough of them, is ended, or diverges."""

    def __init__(self, parameters: Parameters, updates: int, end_reason: str | None) -> None:
        """`updates` is the number that completes the run; 0: none. `end_reason`: why it has ended."""
        self._parameters = parameters
        self._updates = updates
        self._end_reason = end_reason
        self._diverged: str | None = None
        self.publish()

    def publish(self) -> None:
        """Publish the state in memory, which is durable now."""
        self.published = Published(
            self._parameters.version, self._parameters.regime.learning_rate, self.end_reason, self._diverged
        )

    @property
    def end_reason(self) -> str | None:
        """Why the run is complete, if it is."""
        if 0 < self._updates <= self._parameters.version:
            return f"it has its {self._updates} update{'s' * (self._updates != 1)}"
        return self._end_reason

    def is_open(self) -> bool:
        """Whether updates are taken."""
        return self.end_reason is None and self._diverged is None

    def check_open(self) -> None:
        """Raise RunComplete or RunDiverged if no updates are taken."""
        if (reason := self.end_reason) is not None:
            raise RunComplete(f"the run is over: {reason}")
        if self._diverged is not None:
            raise RunDiverged(self._diverged)

    def end(self, reason: str) -> None:
        self._end_reason = reason

    def mark_diverged(self, reason: str) -> None:
        """Take no more updates until `resume`; `reason` is for devices and people."""
        self._diverged = reason

    def resume(self) -> None:
        self._diverged = None


EXPLODED_RATIO = 1000
"""A loss of more than this many times the first one, or times 1 if that is more, is not noise."""

_LEARNED_RATIO = 0.8
_LOST_RATIO = 0.95
_WORSE_RATIO = 3
_BAD_LIMIT = 2


def is_sound(evaluation: Evaluation, first: float) -> bool:
    """Whether the loss is a number and has not EXPLODED_RATIO, in a run whose first loss was `first`."""
    return evaluation.loss is not None and evaluation.loss <= EXPLODED_RATIO * max(1.0, first)


class LossMonitor:
    """Follows the evaluations of a run, in order."""

    def __init__(self) -> None:
        self._first_loss: float | None = None
        self._first_accuracy: float | None = None
        self._best_accuracy = 0.0
        self._lowest_loss = math.inf
        self.best = 0
        """The version with the lowest loss so far; 0 before there is one."""
        self._bad = 0
        """Bad evaluations in a row, up to the last one."""

    @property
    def is_lost(self) -> bool:
        """Whether the model has lost all that it had learned."""
        return self._bad >= _BAD_LIMIT

    def take(self, evaluation: Evaluation) -> None:
        loss, accuracy = evaluation.loss, evaluation.accuracy
        if self._first_loss is None:
            self._first_loss, self._first_accuracy = loss, accuracy
        first = self._first_loss
        if loss is None or first is None or not is_sound(evaluation, first):
            self._bad = _BAD_LIMIT
            return
        self._bad = self._bad + 1 if self._is_bad(loss, first, accuracy) else 0
        self._best_accuracy = max(self._best_accuracy, accuracy or 0.0)
        if loss < self._lowest_loss:
            self._lowest_loss, self.best = loss, evaluation.version

    def reset(self) -> None:
        """Reset the count of bad evaluations: the model or its learning rate has changed."""
        self._bad = 0

    def _is_bad(self, loss: float, first: float, accuracy: float | None) -> bool:
        if first <= 0:
            return False
        if accuracy is None or self._first_accuracy is None:
            return loss >= _WORSE_RATIO * first
        if self._lowest_loss > _LEARNED_RATIO * first:
            return loss >= _WORSE_RATIO * first and accuracy <= self._first_accuracy
        return loss >= _LOST_RATIO * first and accuracy <= self._best_accuracy / 2


_MIN_RECOVERY_RATE = 1 / 64
"""No recovery lowers the rate below this part of the configured one: then the rate is not the cause."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """The criteria that end a run or restore a model. A criterion of 0 has no effect."""

    accuracy: float = 0.0
    """The accuracy, from 0 to 1, of an evaluation that ends the run."""
    patience: int = 0
    """How many evaluations in a row, none better than the best one before, end the run."""
    seconds: float = 0.0
    """Seconds since the first update that end the run."""
    traffic: int = 0
    """Bytes to and from all devices that end the run."""
    min_recovery_rate: float = math.inf
    """The lower bound of the learning rate at a recovery; infinite: the model never goes back."""

    @classmethod
    def from_config(cls, config: Config) -> "Criteria":
        end, rate = config.end, config.coordination.learning_rate
        recovers = config.evaluation.recover and not config.coordination.traits.elastic
        return cls(
            end.accuracy,
            end.patience,
            end.seconds,
            end.bytes,
            rate * _MIN_RECOVERY_RATE if recovers else math.inf,
        )


class EvaluationJudge:
    """Judges the evaluations of a run, in order."""

    def __init__(self, criteria: Criteria, history: Iterable[Evaluation] = (), rate_version: int = 0) -> None:
        """`history` has the past evaluations. `rate_version` is where the learning rate last changed."""
        self._criteria = criteria
        self._rate_version = rate_version
        self.best: Evaluation | None = None
        """The best evaluation; the first one if several are equal."""
        self._last: Evaluation | None = None
        self._since_best = 0
        self._losses = LossMonitor()
        self._end_reason: str | None = None
        """Why the run is over, whatever comes next."""
        for evaluation in history:
            self.take(evaluation)

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether `evaluation` is better than all before: by its accuracy, or its loss where it has none."""
        if evaluation.loss is None:
            return False
        return self.best is None or _score(evaluation) > _score(self.best)

    def take(self, evaluation: Evaluation) -> None:
        self._last = evaluation
        self._losses.take(evaluation)
        if evaluation.version <= self._rate_version:  # from before the last change of the rate
            self._losses.reset()
        self._since_best += 1
        if self.is_best(evaluation):
            self.best = evaluation
            self._since_best = 0
        self._end_reason = self._end_reason or self._find_end_reason(evaluation)

    def _find_end_reason(self, evaluation: Evaluation) -> str | None:
        criteria = self._criteria
        if 0 < criteria.accuracy <= (evaluation.accuracy or 0.0):
            return f"it has reached an accuracy of {criteria.accuracy:g} (end.accuracy)"
        if self.best is not None and 0 < criteria.patience <= self._since_best:
            return (
                f"{criteria.patience} evaluations were no better than that of version {self.best.version} "
                "(end.patience)"
            )
        return None

    def recovery(self, rate: float) -> tuple[int, float] | None:
        """Return (the version to go back to, the new learning rate); None: the model does not go back.

        It goes back once it has lost all that it had learned. `rate` is the present learning rate.
        """
        lower, best = rate / 2, self._losses.best
        if not self._losses.is_lost or lower < self._criteria.min_recovery_rate:
            return None
        if self._last is None or self._last.version <= best:  # no version since the best one
            return None
        return best, lower

    def record_rate_change(self, version: int) -> None:
        """Record that the learning rate changes from `version` on."""
        self._rate_version = version
        self._losses.reset()

    def past_end_reason(self, start_time: float | None) -> str | None:
        """Return why the run was over with its last evaluation; None: it was not."""
        last = self._last
        return None if last is None else self.end_reason(start_time, last.time, last.ingress + last.egress)

    def end_reason(self, start_time: float | None, time: float, traffic: int) -> str | None:
        """Return why the run is over at `time`, after `traffic` bytes; None: it is not.

        Its first update came at `start_time`, if any.
        """
        criteria, seconds = self._criteria, 0.0 if start_time is None else time - start_time
        if self._end_reason is not None:
            return self._end_reason
        if 0 < criteria.seconds <= seconds:
            return f"it has had its {criteria.seconds:g} seconds (end.seconds)"
        if 0 < criteria.traffic <= traffic:
            return f"it has had its {criteria.traffic} bytes (end.bytes)"
        return None


def _score(evaluation: Evaluation) -> float:
    if evaluation.accuracy is not None:
        return evaluation.accuracy
    assert evaluation.loss is not None, "it would not be the best"
    return -evaluation.loss
