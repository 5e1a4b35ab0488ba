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
    """The training loss then, averaged alike."""
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
    first: tuple[float | None, float | None] = (None, None)
    """The first test loss, and the first training loss, that were known."""
    losses: tuple[float, ...] = ()
    """The last test losses, and"""
    trainings: tuple[float, ...] = ()
    """the last training losses."""

    def after(self, evaluation: Evaluation, training: float | None) -> "Course":
        """One more; `training` is the average training loss at that time, if it is known."""
        loss = evaluation.loss
        score = evaluation.accuracy if evaluation.accuracy is not None else None if loss is None else -loss
        best = self.best
        if score is not None and (best is None or score > best.score):
            best = Best(score, evaluation.version, evaluation.time)
        first = (
            loss if self.first[0] is None else self.first[0],
            training if self.first[1] is None else self.first[1],
        )
        losses = () if loss is None else (*self.losses, loss)[-_LATELY:]
        trainings = () if training is None else (*self.trainings, training)[-_LATELY:]
        lowest, since = self.lowest, self.since_lowest + 1
        lately, trained = _average(losses), _average(trainings)
        if lately is not None and trained is not None and (lowest is None or lately <= lowest.loss):
            lowest, since = Lowest(lately, trained, evaluation.version), 0
        return replace(
            self,
            count=self.count + 1,
            began=self.began if self.count else evaluation.time,
            best=best,
            lowest=lowest,
            since_lowest=since,
            first=first,
            losses=losses,
            trainings=trainings,
        )

    @property
    def lately(self) -> float | None:
        """The test loss, averaged over the last few evaluations."""
        return _average(self.losses)

    @property
    def training(self) -> float | None:
        """The training loss, averaged alike."""
        return _average(self.trainings)


def _average(last: tuple[float, ...]) -> float | None:
    return sum(last) / _LATELY if len(last) == _LATELY else None
