"""A device's standing: the evidence from its updates that it pulls with the other devices, or against them.

It is Wald's sequential test (A. Wald, "Sequential tests of statistical hypotheses", 1945) of two hypotheses.
One device's agreements a are distributed like the others', N(m, S); another's like their mirror image,
N(-m, S). The evidence is ln p(a | with) / p(a | against) = 2 m' S^-1 a. The standing is its sum. If
updates agree only by chance, m = 0, there is no evidence and no standing changes.

The sum stays between two bounds, as in a CUSUM (E. S. Page, 1954). A device that was good for long is
detected as quickly as any other. A bad device may count again, later if it was bad for longer. Positive
evidence fades with the versions; negative evidence does not.
"""

from collections import deque
from math import sqrt

import numpy as np

from edgeflock.server.defence.trusted import Cosines

GOOD = 3.0
"""The upper bound of the standing: evidence of 20 to 1."""

BAD = -60.0
"""The lower bound of the standing. It is much farther from 0 than GOOD. Once a model has learned most of the
server's samples, gradients give little evidence, and a detected device must not recover by that. A good
device does not get so far."""

HALF_LIFE = 1024.0
"""Versions after which half of a positive standing is forgotten."""

_LATEST = 256
"""How many agreements the usual agreement is computed from."""

_EVERY = 16
"""Versions after which the usual agreement is computed again."""

_FEW = 16
"""With fewer agreements, there is no evidence."""

_RIDGE = 0.05
"""A ridge term that shrinks the correlations of agreements. They come from few updates, and with a single
group `extremes` and `mean` are identical."""

_CLEAR = 0.7
"""The upper limit of the usual agreement, in deviations. A few updates may agree well by chance."""

_FAR = 3.0
"""The limit of one update's agreement, in deviations, on either side. No update decides alone."""


def faded(standing: float, versions: int) -> float:
    """Return a device's standing after `versions` versions, none of which it made."""
    return standing * 0.5 ** (versions / HALF_LIFE) if standing > 0 else standing


class Agreements:
    """The usual agreement of updates that count. It is a function of the latest ones and their versions."""

    def __init__(self) -> None:
        self._latest: deque[Cosines] = deque(maxlen=_LATEST)
        self._due: tuple[Cosines, ...] = ()
        """Agreements to compute the usual agreement from; empty: it is up to date."""
        self._weights: tuple[float, ...] = ()
        """Weights of the three cosines: their sum has mean `_usual` and deviation 1. Empty: no evidence."""
        self._usual = 0.0

    def add(self, version: int, agreement: Cosines | None) -> None:
        """Add the agreement of the update that made `version`; None if it must not change the usual one."""
        if agreement is not None:
            self._latest.append(agreement)
        if version % _EVERY == 0:
            self._due = tuple(self._latest)

    def standing(self, before: float, agreement: Cosines) -> float:
        """Return a device's standing after an update with this agreement, from BAD to GOOD."""
        return min(GOOD, max(BAD, before + self._evidence(agreement)))

    def _evidence(self, agreement: Cosines) -> float:
        if self._due:
            self._settle(self._due)
        if not self._weights:
            return 0.0
        total = sum(weight * one for weight, one in zip(self._weights, agreement, strict=True))
        return 2 * min(_CLEAR, self._usual) * min(_FAR, max(-_FAR, total))

    def _settle(self, latest: tuple[Cosines, ...]) -> None:
        """Compute the weights: the positive part of S^-1 m, so that agreement is never negative evidence."""
        self._weights, self._due = (), ()
        if len(latest) < _FEW:
            return
        known = np.array(latest)
        mean, deviation = known.mean(0), known.std(0)
        scale = np.divide(1.0, deviation, out=np.zeros(3), where=deviation > 1e-9)
        scaled = (known - mean) * scale
        like = scaled.T @ scaled / len(known)
        towards = np.maximum(np.linalg.solve(like + _RIDGE * np.eye(3), mean * scale), 0.0)
        variance = float(towards @ like @ towards)
        if variance <= 0:
            return
        weights = towards * scale / sqrt(variance)
        self._usual = float(weights @ mean)
        if self._usual > 0:
            self._weights = tuple(weights.tolist())
