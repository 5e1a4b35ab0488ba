"""The history of a run's evaluations, as far as findings need it, in constant space."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from edgeflock.shared.protocol.frames import Classes, Evaluation

_LATELY = 5
"""How many evaluations "lately" covers: one alone may be a spike."""

_LOST, _FOUND = 0.1, 0.2
"""A class is lost if its recall is at most the first part of the others' mean, until it is above the second.
A class that the devices hold in a fair part exceeds this within the first few hundred updates."""
_LEARNED = 0.5
"""The others' mean recall from which they are learned: before, classes are learned one after the other."""
_FEW = 10
"""The least predictions of a class in the held-out data: with fewer, chance decides what is right."""
_COMMON = 0.25
"""The least part of the mean number of predictions of a class: rarer classes have low recall in any model."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best evaluation so far."""

    score: float
    """Accuracy, or -loss where there is none."""
    version: int
    time: float


@dataclass(frozen=True, slots=True)
class Lowest:
    """The lowest test loss so far, averaged over the last few evaluations."""

    loss: float
    training: float
    """The training loss then, averaged alike."""
    version: int


@dataclass(frozen=True, slots=True)
class LostClass:
    """A class with a recall near 0, while the others are learned."""

    right: float
    """The recall of the class lately, and"""
    others: float
    """the mean recall of the learned classes."""
    version: int
    """The version since which it is lost, and"""
    evaluations: int = 1
    """in how many evaluations."""


@dataclass(frozen=True, slots=True)
class EvaluationHistory:
    """A summary of all evaluations so far. `after` returns the next summary."""

    count: int = 0
    began: float = 0.0
    """Unix time of the first."""
    best: Best | None = None
    lowest: Lowest | None = None
    since_lowest: int = 0
    """Evaluations since `lowest`."""
    first: tuple[float | None, float | None] = (None, None)
    """The first known test loss, and the first known training loss."""
    losses: tuple[float, ...] = ()
    """The last test losses, and"""
    trainings: tuple[float, ...] = ()
    """the last training losses."""
    classes: tuple[Classes, ...] = ()
    """The right predictions of each class in the last evaluations that report them."""
    lost: Mapping[int, LostClass] = field(default_factory=dict)
    """The lost classes, by number."""

    def after(self, evaluation: Evaluation, training: float | None) -> "EvaluationHistory":
        """Return the history with one more evaluation; `training` is the mean training loss, if known."""
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
        classes, missed = self.classes, self.lost
        if evaluation.classes:
            classes = (*classes, evaluation.classes)[-_LATELY:]
            missed = dict(_lost(classes, self.lost, evaluation.version))
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
            classes=classes,
            lost=missed,
        )

    @property
    def lately(self) -> float | None:
        """The test loss, averaged over the last few evaluations."""
        return _average(self.losses)

    @property
    def training(self) -> float | None:
        """The training loss, averaged alike."""
        return _average(self.trainings)


def _lost(
    classes: Sequence[Classes], before: Mapping[int, LostClass], version: int
) -> Iterator[tuple[int, LostClass]]:
    """Yield (class, LostClass) of the classes that are lost by the last evaluations together. `before` has
    those that were lost before.
    """
    if len(classes) < _LATELY:
        return
    totals = [
        (sum(right), sum(of)) for right, of in (zip(*one, strict=True) for one in zip(*classes, strict=False))
    ]
    common = _COMMON * sum(of for _, of in totals) / len(totals)
    parts = {n: right / of for n, (right, of) in enumerate(totals) if of >= max(_FEW * _LATELY, common)}
    best = max(parts.values(), default=0.0)
    learned = [part for part in parts.values() if part > _LOST * best]
    if 2 * len(learned) < len(parts) or (others := fmean(learned or [0.0])) < _LEARNED:
        return
    for n, part in parts.items():
        if part <= (_FOUND if n in before else _LOST) * others:
            since = before.get(n, LostClass(part, others, version, 0))
            yield n, LostClass(part, others, since.version, since.evaluations + 1)


def _average(last: tuple[float, ...]) -> float | None:
    return sum(last) / _LATELY if len(last) == _LATELY else None
