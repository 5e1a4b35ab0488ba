"""Trusted directions, and an update's agreement with them at the update's own entries."""

from dataclasses import dataclass
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
