"""Detects by its evaluations that a run has lost what it had learned.

A learning rate that is too high makes the loss rise, often late and for good. Noise, drifting data and
overfitting raise the loss too, but then the model still has some skill. So only these conditions count, in
two evaluations in a row:

    loss >= 0.95 first and accuracy <= best / 2   if the run had learned: lowest <= 0.8 first
    loss >= 3 first and accuracy <= first one     if it had not

0.95: a model whose outputs are the same for every input has the entropy of the labels as its loss. The loss
of a model with random weights is a little higher. Without an accuracy the loss must be 3 times the first in
either case. A loss that is no number, or over a thousand times the first one, counts at once. If the first
loss is not above 0, only that condition applies.
"""

import math

from edgeflock.shared.protocol.frames import Evaluation

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
        """Take the next evaluation."""
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
