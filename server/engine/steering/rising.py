"""Whether a run has lost what it had learned, by its evaluations.

A learning rate that is too high makes the loss rise, often late and for good. Noise, drifting data and
overfitting make it rise as well, but then the model still knows something. So nothing short of this counts,
in two evaluations one after the other:

    loss >= 0.95 first and accuracy <= best / 2   of a run that had learned something: lowest <= 0.8 first
    loss >= 3 first and accuracy <= first one     of one that had not

0.95: a model whose outputs are the same for every input has the entropy of the labels as its loss. That of a
model with random weights is a little higher.
Without an accuracy the loss must be 3 times the first in either case. A loss that is no number, or a thousand
times the first one, counts at once. Of a first loss that is not above 0 nothing else is known.
"""

import math

from edgeflock.shared.protocol.frames import Evaluation

EXPLODED = 1000
"""A loss so many times the first one, or 1 if that is less, is no honest spike any more."""

_LEARNED = 0.8
_LOST = 0.95
_WORSE = 3
_IN_A_ROW = 2


def is_sound(evaluation: Evaluation, first: float) -> bool:
    """Whether the loss is a number that is not EXPLODED, for a run whose first loss was `first`."""
    return evaluation.loss is not None and evaluation.loss <= EXPLODED * max(1.0, first)


class Rising:
    """Goes through the evaluations of a run, in order."""

    def __init__(self) -> None:
        self._first_loss: float | None = None
        self._first_accuracy: float | None = None
        self._best_accuracy = 0.0
        self._lowest_loss = math.inf
        self.best = 0
        """The version with the lowest loss so far; 0 before there is one."""
        self._bad = 0
        """Evaluations in a row, the last one included, that know nothing any more."""

    @property
    def is_lost(self) -> bool:
        """Whether all that was learned is lost."""
        return self._bad >= _IN_A_ROW

    def take(self, evaluation: Evaluation) -> None:
        """One more."""
        loss, accuracy = evaluation.loss, evaluation.accuracy
        if self._first_loss is None:
            self._first_loss, self._first_accuracy = loss, accuracy
        first = self._first_loss
        if loss is None or first is None or not is_sound(evaluation, first):
            self._bad = _IN_A_ROW
            return
        self._bad = self._bad + 1 if self._knows_nothing(loss, first, accuracy) else 0
        self._best_accuracy = max(self._best_accuracy, accuracy or 0.0)
        if loss < self._lowest_loss:
            self._lowest_loss, self.best = loss, evaluation.version

    def begin_again(self) -> None:
        """The model is another one: what comes does not go on from the last evaluation."""
        self._bad = 0

    def _knows_nothing(self, loss: float, first: float, accuracy: float | None) -> bool:
        if first <= 0:
            return False
        if accuracy is None or self._first_accuracy is None:
            return loss >= _WORSE * first
        if self._lowest_loss > _LEARNED * first:
            return loss >= _WORSE * first and accuracy <= self._first_accuracy
        return loss >= _LOST * first and accuracy <= self._best_accuracy / 2
