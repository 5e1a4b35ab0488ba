"""Prequential evaluation on a stream: each batch is evaluated before training on it.

    S' = f S + s,   N' = f N + 1,   estimate S / N

for each sample, with the largest weight on the newest. J. Gama, R. Sebastiao, P. P. Rodrigues, "On evaluating
stream learning algorithms", Machine Learning 90 (2013), fading factors. Samples whose update the server does
not have yet do not count, since they may return.
"""

from dataclasses import dataclass

from edgeflock.shared.protocol.messages import Facts

FADING = 0.999
"""f: the estimate covers about the last 1,000 samples."""


@dataclass(slots=True)
class _Faded:
    total: float = 0.0
    weight: float = 0.0

    def add(self, mean: float, count: int) -> None:
        """Add `count` samples whose mean is `mean`."""
        kept = FADING**count
        self.total = kept * self.total + mean * (1 - kept) / (1 - FADING)
        self.weight = kept * self.weight + (1 - kept) / (1 - FADING)


class Prequential:
    """The faded loss and accuracy of one stream."""

    def __init__(self) -> None:
        self._loss, self._right = _Faded(), _Faded()
        self._unsettled: list[tuple[float, float | None, int]] = []

    def record_result(self, loss: float, right: float | None, count: int) -> None:
        """Record the mean loss of `count` samples and, if defined, the fraction of correct predictions."""
        self._unsettled.append((loss, right, count))

    def settle(self) -> None:
        """Count the recorded samples: they are used."""
        for loss, right, count in self._unsettled:
            self._loss.add(loss, count)
            if right is not None:
                self._right.add(right, count)
        self._unsettled.clear()

    def take_back(self) -> None:
        """Discard the recorded results: the samples return."""
        self._unsettled.clear()

    def facts(self) -> Facts:
        """Return the current estimates."""
        faded = {"stream_loss": self._loss, "stream_accuracy": self._right}
        return {name: one.total / one.weight for name, one in faded.items() if one.weight}
