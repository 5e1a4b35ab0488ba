"""The history of a run's evaluations, as far as findings need it, in constant space."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from edgeflock.shared.protocol.frames import Classes, Evaluation

_WINDOW = 5
"""How many evaluations "lately" covers: one alone may be a spike."""

_LOST_BEGIN, _LOST_END = 0.1, 0.2
"""A class is lost if its recall is at most the first part of the others' mean, until it is above the second.
A class that the devices hold in a fair part exceeds this within the first few hundred updates."""
_LEARNED = 0.5
"""The others' mean recall from which they are learned: before, classes are learned one after the other."""
_MIN_PREDICTIONS = 10
"""The least predictions of a class in the held-out data: with fewer, chance decides what is right."""
_MIN_FREQUENCY = 0.25
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
    training_loss: float
    """The training loss then, averaged alike."""
    version: int


@dataclass(frozen=True, slots=True)
class LostClass:
    """A class with a recall near 0, while the others are learned."""

    recall: float
    """The recall of the class lately, and"""
    other_recall: float
    """the mean recall of the learned classes."""
    version: int
    """The version since which it is lost, and"""
    evaluations: int = 1
    """in how many evaluations."""


@dataclass(frozen=True, slots=True)
class EvaluationHistory:
    """A summary of all evaluations so far. `with_evaluation` returns the next summary."""

    count: int = 0
    start: float = 0.0
    """Unix time of the first."""
    best: Best | None = None
    lowest: Lowest | None = None
    lowest_age: int = 0
    """Evaluations since `lowest`."""
    first: tuple[float | None, float | None] = (None, None)
    """The first known test loss, and the first known training loss."""
    losses: tuple[float, ...] = ()
    """The last test losses, and"""
    training_losses: tuple[float, ...] = ()
    """the last training losses."""
    classes: tuple[Classes, ...] = ()
    """The right predictions of each class in the last evaluations that report them."""
    lost: Mapping[int, LostClass] = field(default_factory=dict)
    """The lost classes, by number."""

    def with_evaluation(self, evaluation: Evaluation, training_loss: float | None) -> "EvaluationHistory":
        """Return the history with one more evaluation; `training_loss` is the mean, if known."""
        loss = evaluation.loss
        score = evaluation.accuracy if evaluation.accuracy is not None else None if loss is None else -loss
        best = self.best
        if score is not None and (best is None or score > best.score):
            best = Best(score, evaluation.version, evaluation.time)
        first = (
            loss if self.first[0] is None else self.first[0],
            training_loss if self.first[1] is None else self.first[1],
        )
        losses = () if loss is None else (*self.losses, loss)[-_WINDOW:]
        training_losses = () if training_loss is None else (*self.training_losses, training_loss)[-_WINDOW:]
        lowest, age = self.lowest, self.lowest_age + 1
        test_loss, train_loss = _mean(losses), _mean(training_losses)
        if test_loss is not None and train_loss is not None and (lowest is None or test_loss <= lowest.loss):
            lowest, age = Lowest(test_loss, train_loss, evaluation.version), 0
        classes, lost = self.classes, self.lost
        if evaluation.classes:
            classes = (*classes, evaluation.classes)[-_WINDOW:]
            lost = dict(_find_lost(classes, self.lost, evaluation.version))
        return replace(
            self,
            count=self.count + 1,
            start=self.start if self.count else evaluation.time,
            best=best,
            lowest=lowest,
            lowest_age=age,
            first=first,
            losses=losses,
            training_losses=training_losses,
            classes=classes,
            lost=lost,
        )

    @property
    def test_loss(self) -> float | None:
        """The test loss, averaged over the last few evaluations."""
        return _mean(self.losses)

    @property
    def training_loss(self) -> float | None:
        """The training loss, averaged alike."""
        return _mean(self.training_losses)


def _find_lost(
    classes: Sequence[Classes], previous: Mapping[int, LostClass], version: int
) -> Iterator[tuple[int, LostClass]]:
    """Yield (class, LostClass) of the classes that are lost by the last evaluations together.

    `previous` has those that were lost before.
    """
    if len(classes) < _WINDOW:
        return
    totals = [
        (sum(right), sum(total))
        for right, total in (zip(*one, strict=True) for one in zip(*classes, strict=False))
    ]
    common = _MIN_FREQUENCY * sum(total for _, total in totals) / len(totals)
    parts = {
        n: right / total
        for n, (right, total) in enumerate(totals)
        if total >= max(_MIN_PREDICTIONS * _WINDOW, common)
    }
    best = max(parts.values(), default=0.0)
    learned = [part for part in parts.values() if part > _LOST_BEGIN * best]
    if 2 * len(learned) < len(parts) or (other_recall := fmean(learned or [0.0])) < _LEARNED:
        return
    for n, part in parts.items():
        if part <= (_LOST_END if n in previous else _LOST_BEGIN) * other_recall:
            since = previous.get(n, LostClass(part, other_recall, version, 0))
            yield n, LostClass(part, other_recall, since.version, since.evaluations + 1)


def _mean(last: tuple[float, ...]) -> float | None:
    return sum(last) / _WINDOW if len(last) == _WINDOW else None
