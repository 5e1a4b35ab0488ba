"""How a device stands: what its updates say of whether it pulls with the others, or against them.

Wald's sequential test (A. Wald, "Sequential tests of statistical hypotheses", 1945) of two devices: one whose
agreements are as the others', N(m, d), and one whose are their mirror image, N(-m, d). An agreement a is
evidence ln p(a | with) / p(a | against) = 2 m a / d^2, and a device stands by the sum. Where nobody agrees
any more than by chance, m = 0, nobody's update says anything, and all stand as they did.

The sum is held between two bounds, as in a CUSUM (E. S. Page, 1954): who was good for long is found out as
quickly as anybody, and who was bad may come to count again, the later the longer it was.
"""

from math import sqrt

GOOD = 5.0
"""The most that a device's past speaks for it: so much evidence is as good as 150 to 1."""

BAD = -60.0
"""The most that it speaks against it. Much farther away than GOOD: once a model has learned most of what the
server holds, gradients say little of who pulls which way, and who was found out before must not come back by
that. A good device does not get so far."""

_LATEST = 128
"""Agreements that a mean is of, the latest most."""

_FEW = 16
"""While fewer are known, they say nothing."""

_CLEAR = 0.7
"""The most that m / d counts as: a few that agree well by chance are no measure for all."""

_FAR = 3.0
"""The most that a / d counts as, on either side: no single update decides."""


class Agreements:
    """What agreements are like of updates that count."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = self._square = 0.0

    def add(self, agreement: float) -> None:
        """One more. What is dropped is no measure of what is usual."""
        self._count = min(_LATEST, self._count + 1)
        self._mean += (agreement - self._mean) / self._count
        self._square += (agreement * agreement - self._square) / self._count

    def standing(self, before: float, agreement: float) -> float:
        """Of a device, after an update that agrees so much: float of BAD to GOOD."""
        return min(GOOD, max(BAD, before + self._evidence(agreement)))

    def _evidence(self, agreement: float) -> float:
        variance = self._square - self._mean**2
        if self._count < _FEW or self._mean <= 0 or variance <= 0:
            return 0.0
        deviation = sqrt(variance)
        there = min(_CLEAR, self._mean / deviation)
        return 2 * there * min(_FAR, max(-_FAR, agreement / deviation))
