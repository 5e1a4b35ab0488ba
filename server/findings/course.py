"""How the evaluations of a run go, as far as findings need it: in constant space."""

from dataclasses import dataclass, replace

from edgeflock.shared.protocol.frames import Evaluation

_LATELY = 5
"""Evaluations that "lately" means: one alone may be a spike."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best of the evaluations so far."""

    score: float
    """Accuracy, or -loss where there is none."""
    version: int
    time: float


@dataclass(frozen=True, slots=True)
class Lowest:
    """Where the test loss, averaged over the last few, was lowest."""

    loss: float
    training: float
    """The training loss then."""
    version: int


@dataclass(frozen=True, slots=True)
class Course:
    """What came of all evaluations; `after` is the next one's."""

    count: int = 0
    began: float = 0.0
    """Unix time of the first."""
    best: Best | None = None
    lowest: Lowest | None = None
    since_lowest: int = 0
    """Evaluations after it."""
    losses: tuple[float, ...] = ()
    """The last test losses."""
    training: float | None = None
    """The training loss at the last one."""

    def after(self, evaluation: Evaluation, training: float | None) -> "Course":
        """One more; `training` is the average training loss at that time, if it is known."""
        loss = evaluation.loss
        score = evaluation.accuracy if evaluation.accuracy is not None else None if loss is None else -loss
        best = self.best
        if score is not None and (best is None or score > best.score):
            best = Best(score, evaluation.version, evaluation.time)
        losses = () if loss is None else (*self.losses, loss)[-_LATELY:]
        lowest, since = self.lowest, self.since_lowest + 1
        if len(losses) == _LATELY and training is not None:
            lately = sum(losses) / _LATELY
            if lowest is None or lately <= lowest.loss:
                lowest, since = Lowest(lately, training, evaluation.version), 0
        return replace(
            self,
            count=self.count + 1,
            began=self.began if self.count else evaluation.time,
            best=best,
            lowest=lowest,
            since_lowest=since,
            losses=losses,
            training=training,
        )

    @property
    def lately(self) -> float | None:
        """The test loss, averaged over the last few evaluations."""
        return sum(self.losses) / _LATELY if len(self.losses) == _LATELY else None
