"""A gradient that the server trusts, and how far an update agrees with it where the update has entries."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Where


@dataclass(frozen=True, slots=True)
class Trusted:
    """Of samples that the server holds, by groups."""

    version: int
    """Of the model that it is taken at."""
    gradients: NDArray[np.float32]
    """[P, groups]: a row a parameter, so that an update reads one line of memory an entry."""

    def agreement(self, where: Where, delta: NDArray[np.float32]) -> float:
        """max_c cos(g, v_c) + min_c cos(g, v_c), halved, over the groups c, of the entries of g alone.

        With one group that is the cosine. A device with samples of one class alone pulls towards that one and
        away from others: what tells an honest one is that it pulls more than it pushes. 0 where either is 0.
        """
        there = self.gradients[where]
        lengths = np.sqrt(np.square(there).sum(axis=0, dtype=np.float64))
        scale = lengths * float(np.sqrt(np.dot(delta, delta)))
        with np.errstate(divide="ignore", invalid="ignore"):
            cosines = np.where(scale > 0, (delta @ there) / scale, 0.0)
        return float(cosines.max() + cosines.min()) / 2
