"""Directions that the server trusts, and how far an update agrees with them where the update has entries."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Where
from edgeflock.server.descent.steps import norm


class Cosines(NamedTuple):
    """Cosines of an update with what the server trusts, each -1 to 1."""

    extremes: float
    """Half of the sum of the largest and the smallest of those with the groups' gradients."""
    mean: float
    """Of those."""
    movement: float
    """With what the model moved by lately."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """Gradients of samples that the server holds, by groups, and the latest movement of the model."""

    version: int
    """Of the model that it is taken at."""
    directions: NDArray[np.float32]
    """[P, groups + 1]: a row a parameter, so that an update reads one line of memory an entry; each group's
    gradient, and last theta before less theta now; of length 1, or 0 if it says nothing."""

    def agreement(self, where: Where, delta: NDArray[np.float32]) -> Cosines:
        """Of an update with entries `delta` at `where`, 0 elsewhere. 0 where all of it is.

        A device with samples of one class alone pulls towards that one and away from others: what tells an
        honest one is that its largest cosine is larger than its smallest. Of a device with all classes the
        mean says more, and of any device whether it goes where the others go. Their errors are not the same
        ones, so that all three together say more than each (standing.py).
        """
        length = norm(delta)
        if not length:
            return Cosines(0.0, 0.0, 0.0)
        there = self.directions if isinstance(where, slice) else self.directions.take(where, 0)
        unit = (delta / np.float64(length)).astype(np.float32)  # whatever finite numbers were sent
        *groups, movement = (unit @ there).tolist()
        return Cosines((max(groups) + min(groups)) / 2, sum(groups) / len(groups), movement)
