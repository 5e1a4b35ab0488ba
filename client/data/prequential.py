"""How well the model does on a stream: each batch is judged before it is trained on (test, then train).

    S' = f S + s,   N' = f N + 1,   estimate S / N

for each sample, the newest counting most. J. Gama, R. Sebastiao, P. P. Rodrigues, "On evaluating stream
learning algorithms", Machine Learning 90 (2013), fading factors. What the server does not have yet is not
counted, since it may come again.
"""

from dataclasses import dataclass

from edgeflock.shared.protocol.messages import Facts

FADING = 0.999
"""f: about the last 1,000 samples count."""


@dataclass(slots=True)
class _Faded:
    total: float = 0.0
    weight: float = 0.0

    def add(self, mean: float, count: int) -> None:
        """`count` samples whose mean is `mean`."""
        kept = FADING**count
        self.total = kept * self.total + mean * (1 - kept) / (1 - FADING)
        self.weight = kept * self.weight + (1 - kept) / (1 - FADING)


class Prequential:
    """Of one stream."""

    def __init__(self) -> None:
        self._loss, self._right = _Faded(), _Faded()
        self._unsettled: list[tuple[float, float | None, int]] = []

    def judged(self, loss: float, right: float | None, count: int) -> None:
        """What the model makes of the next `count` samples: their mean loss, and the part of the predictions
        that were right, if its loss knows that.
        """
        self._unsettled.append((loss, right, count))

    def settle(self) -> None:
        """They have been trained on."""
        for loss, right, count in self._unsettled:
            self._loss.add(loss, count)
            if right is not None:
                self._right.add(right, count)
        self._unsettled.clear()

    def take_back(self) -> None:
        """They have not been, and come again."""
        self._unsettled.clear()

    def facts(self) -> Facts:
        """What there is to tell by now."""
        faded = {"stream_loss": self._loss, "stream_accuracy": self._right}
        return {name: one.total / one.weight for name, one in faded.items() if one.weight}
