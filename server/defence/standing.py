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
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Index
from edgeflock.server.descent.kernels import norm


class Cosines(NamedTuple):
    """Cosines of an update with the trusted directions, each from -1 to 1."""

    extremes: float
    """Half the sum of the largest and the smallest cosine with the groups' gradients."""
    mean: float
    """The mean cosine with the groups' gradients."""
    movement: float
    """The cosine with the model's latest movement."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """Gradients of samples that the server holds, by groups, and the latest movement of the model."""

    version: int
    """The version of the model that the gradients are computed at."""
    directions: NDArray[np.float32]
    """[P, groups + 1]: one row a parameter, so that an update reads one cache line an entry. The columns are
    the groups' gradients, then earlier theta minus current theta. Each has length 1, or 0 if unknown."""

    def agreement(self, indices: Index, delta: NDArray[np.float32]) -> Cosines:
        """Return the cosines of an update with entries `delta` at `indices`, 0 elsewhere. 0 if all are zero.

        A device with samples of one class pulls towards this class and away from others. If it is honest, its
        largest cosine is larger in magnitude than its smallest. The mean says more about a device with all
        classes, and the movement about any device. Their errors differ, so the three are used together
        (standing.py).
        """
        length = norm(delta)
        if not length:
            return Cosines(0.0, 0.0, 0.0)
        directions = self.directions if isinstance(indices, slice) else self.directions.take(indices, 0)
        unit = (delta / np.float64(length)).astype(np.float32)  # float64, for any finite numbers
        *groups, movement = (unit @ directions).tolist()
        return Cosines((max(groups) + min(groups)) / 2, sum(groups) / len(groups), movement)


MAX_STANDING = 3.0
"""The upper bound of the standing: evidence of 20 to 1."""

MIN_STANDING = -60.0
"""The lower bound of the standing. It is much farther from 0 than MAX_STANDING. Once a model has learned most
of the server's samples, gradients give little evidence, and a detected device must not recover by that. A
good device does not get so far."""

HALF_LIFE = 1024.0
"""Versions after which half of a positive standing is forgotten."""

_LATEST = 256
"""How many agreements the usual agreement is computed from."""

_INTERVAL = 16
"""Versions after which the usual agreement is computed again."""

_MIN_AGREEMENTS = 16
"""With fewer agreements, there is no evidence."""

_RIDGE = 0.05
"""A ridge term that shrinks the correlations of agreements. They come from few updates, and with a single
group `extremes` and `mean` are identical."""

_MAX_MOVEMENT = 3.0
"""The usual agreement is at most this many times that with the groups' gradients alone. Bad devices can make
the model move their way. Then they agree with its movement, and honest devices oppose it."""

_MAX_USUAL = 0.7
"""The upper limit of the usual agreement, in deviations. A few updates may agree well by chance."""

_MAX_DEVIATION = 3.0
"""The limit of one update's agreement, in deviations, on either side. No update decides alone."""


def decay_standing(standing: float, versions: int) -> float:
    """Return a device's standing after `versions` versions, none of which it made."""
    return standing * 0.5 ** (versions / HALF_LIFE) if standing > 0 else standing


class Agreements:
    """The usual agreement of updates that count. It is a function of the latest ones and their versions."""

    def __init__(self) -> None:
        self._latest: deque[Cosines] = deque(maxlen=_LATEST)
        self._pending: tuple[Cosines, ...] = ()
        """Agreements to compute the usual agreement from; empty: it is up to date."""
        self._weights: tuple[float, ...] = ()
        """Weights of the three cosines: their sum has mean `_usual` and deviation 1. Empty: no evidence."""
        self._usual = 0.0

    def add(self, version: int, agreement: Cosines | None) -> None:
        """Add the agreement of the update that made `version`; None if it must not change the usual one."""
        if agreement is not None:
            self._latest.append(agreement)
        if version % _INTERVAL == 0:
            self._pending = tuple(self._latest)

    def standing(self, standing: float, agreement: Cosines) -> float:
        """Return a device's standing after an update with this agreement, between the two bounds."""
        return min(MAX_STANDING, max(MIN_STANDING, standing + self._evidence(agreement)))

    def _evidence(self, agreement: Cosines) -> float:
        if self._pending:
            self._compute_weights(self._pending)
        if not self._weights:
            return 0.0
        total = sum(weight * one for weight, one in zip(self._weights, agreement, strict=True))
        return 2 * min(_MAX_USUAL, self._usual) * min(_MAX_DEVIATION, max(-_MAX_DEVIATION, total))

    def _compute_weights(self, latest: tuple[Cosines, ...]) -> None:
        """Compute the weights: the positive part of S^-1 m, so that agreement is never negative evidence."""
        self._weights, self._pending = (), ()
        if len(latest) < _MIN_AGREEMENTS:
            return
        agreements = np.array(latest)
        mean, deviation = agreements.mean(0), agreements.std(0)
        scale = np.divide(1.0, deviation, out=np.zeros(3), where=deviation > 1e-9)
        scaled = (agreements - mean) * scale
        correlations = scaled.T @ scaled / len(agreements)
        direction = np.maximum(np.linalg.solve(correlations + _RIDGE * np.eye(3), mean * scale), 0.0)
        variance = float(direction @ correlations @ direction)
        groups = direction[:2]
        of_groups = float(groups @ correlations[:2, :2] @ groups)
        if variance <= 0 or of_groups <= 0:
            return
        scaled_mean = mean * scale
        by_groups = float(groups @ scaled_mean[:2]) / sqrt(of_groups)
        self._usual = min(float(direction @ scaled_mean) / sqrt(variance), _MAX_MOVEMENT * by_groups)
        if self._usual > 0:
            self._weights = tuple((direction * scale / sqrt(variance)).tolist())
