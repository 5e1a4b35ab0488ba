"""How a device stands: what its updates say of whether it pulls with the others, or against them.

Wald's sequential test (A. Wald, "Sequential tests of statistical hypotheses", 1945) of two devices: one whose
agreements a are as the others', N(m, S), and one whose are their mirror image, N(-m, S). They are evidence
ln p(a | with) / p(a | against) = 2 m' S^-1 a, and a device stands by the sum. Where nobody agrees any more
than by chance, m = 0, nobody's update says anything, and all stand as they did.

The sum is held between two bounds, as in a CUSUM (E. S. Page, 1954): who was good for long is found out as
quickly as anybody, and who was bad may come to count again, the later the longer it was. What speaks for a
device is forgotten as versions go by; what speaks against it is not.
"""

from collections import deque
from math import sqrt

import numpy as np

from edgeflock.server.defence.trusted import Cosines

GOOD = 3.0
"""The most that a device's past speaks for it: so much evidence is as good as 20 to 1."""

BAD = -60.0
"""The most that it speaks against it. Much farther away than GOOD: once a model has learned most of what the
server holds, gradients say little of who pulls which way, and who was found out before must not come back by
that. A good device does not get so far."""

HALF_LIFE = 1024.0
"""Versions after which half of what speaks for a device is forgotten."""

_LATEST = 256
"""Agreements that what is usual is of,"""

_EVERY = 16
"""and after so many versions it is computed anew."""

_FEW = 16
"""While fewer are known, they say nothing."""

_RIDGE = 0.05
"""What the correlations of agreements count as less than they seem to be: they are of few updates, and those
with the gradients of one group alone are the same ones."""

_CLEAR = 0.7
"""The most that an agreement counts as on the average, in deviations: a few that agree well by chance are no
measure for all."""

_FAR = 3.0
"""The most that one update's counts as, on either side: none decides alone."""


def faded(standing: float, versions: int) -> float:
    """How a device stands so many versions later, of which it has made none."""
    return standing * 0.5 ** (versions / HALF_LIFE) if standing > 0 else standing


class Agreements:
    """What agreements are like of updates that count. A function of the latest of them and their versions."""

    def __init__(self) -> None:
        self._latest: deque[Cosines] = deque(maxlen=_LATEST)
        self._due: tuple[Cosines, ...] = ()
        """Those that what is usual is yet to be computed of; none: it is."""
        self._weights: tuple[float, ...] = ()
        """Of the agreements' sum that is usually `_usual`, with deviation 1; none: it says nothing."""
        self._usual = 0.0

    def add(self, version: int, agreement: Cosines | None) -> None:
        """What the update that made a version came to; None, if it is no measure of what is usual."""
        if agreement is not None:
            self._latest.append(agreement)
        if version % _EVERY == 0:
            self._due = tuple(self._latest)

    def standing(self, before: float, agreement: Cosines) -> float:
        """Of a device, after an update that agrees so much: float of BAD to GOOD."""
        return min(GOOD, max(BAD, before + self._evidence(agreement)))

    def _evidence(self, agreement: Cosines) -> float:
        if self._due:
            self._settle(self._due)
        if not self._weights:
            return 0.0
        total = sum(weight * one for weight, one in zip(self._weights, agreement, strict=True))
        return 2 * min(_CLEAR, self._usual) * min(_FAR, max(-_FAR, total))

    def _settle(self, latest: tuple[Cosines, ...]) -> None:
        """S^-1 m, as far as it is positive: to agree never speaks against a device."""
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
