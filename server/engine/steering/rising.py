"""Whether a run has lost what it had learned, by its evaluations.

A learning rate that is too high makes the loss rise, often late and for good. Noise, drifting data and
overfitting make it rise as well, but then the model still knows something. So nothing short of this counts,
in two evaluations one after the other:

    loss >= first and accuracy <= best / 2        of a run that had learned something: lowest <= 0.8 first
    loss >= 3 first and accuracy <= first one     of one that had not

Without an accuracy the loss must be 3 times the first in either case. A loss that is no number, or a thousand
times the first one, counts at once. Of a first loss that is not above 0 nothing else is known.
"""

from edgeflock.shared.protocol.frames import Evaluation

EXPLODED = 1000
"""A loss so many times the first one, or 1 if that is less, is no honest spike any more."""

_LEARNED = 0.8
_WORSE = 3
_IN_A_ROW = 2


def is_sound(evaluation: Evaluation, first: float) -> bool:
    """Whether the loss is a number that is not EXPLODED, for a run whose first loss was `first`."""
    return evaluation.loss is not None and evaluation.loss <= EXPLODED * max(1.0, first)


class Rising:
    """Goes through the evaluations of a run, in order."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._begun: float | None = None
        """The accuracy then."""
        self._accuracy = 0.0
        """The highest so far."""
        self._bad = 0
        """Evaluations in a row, the last one included, that know nothing any more."""
        self.lowest: Evaluation | None = None
        """That with the lowest loss so far."""

    @property
    def is_lost(self) -> bool:
        """Whether all that was learned is lost."""
        return self._bad >= _IN_A_ROW

    def take(self, evaluation: Evaluation) -> None:
        """One more."""
        loss, accuracy = evaluation.loss, evaluation.accuracy
        if self._first is None:
            self._first, self._begun = loss, accuracy
        first = self._first
        if not is_sound(evaluation, 1.0 if first is None else first):
            self._bad = _IN_A_ROW
            return
        assert loss is not None, "a sound one has a loss"
        assert first is not None, "it is that loss at the latest"
        self._bad = self._bad + 1 if self._knows_nothing(loss, first, accuracy) else 0
        self._accuracy = max(self._accuracy, accuracy or 0.0)
        if self.lowest is None or self.lowest.loss is None or loss < self.lowest.loss:
            self.lowest = evaluation

    def begin_again(self) -> None:
        """The model is another one: what comes does not go on from the last evaluation."""
        self._bad = 0

    def _knows_nothing(self, loss: float, first: float, accuracy: float | None) -> bool:
        if self.lowest is None or self.lowest.loss is None or first <= 0:
            return False
        if accuracy is None or self._begun is None:
            return loss >= _WORSE * first
        if self.lowest.loss > _LEARNED * first:
            return loss >= _WORSE * first and accuracy <= self._begun
        return loss >= first and accuracy <= self._accuracy / 2
