"""A gradient that the server trusts, and how far an update agrees with it where the update has entries."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Where
from edgeflock.server.descent.steps import norm


@dataclass(frozen=True, slots=True)
class Trusted:
    """Of samples that the server holds, by groups."""

    version: int
    """Of the model that it is taken at."""
    gradients: NDArray[np.float32]
    """[P, groups]: a row a parameter, so that an update reads one line of memory an entry; each group's of
    length 1, or 0 if it says nothing."""

    def agreement(self, where: Where, delta: NDArray[np.float32]) -> float:
        """(max_c cos(g, v_c) + min_c cos(g, v_c)) / 2 over the groups c; g is 0 where it has no entries.

        With one group that is the cosine. A device with samples of one class alone pulls towards that one and
        away from others: what tells an honest one is that it pulls more than it pushes. 0 where g is.
        """
        length = norm(delta)
        if not length:
            return 0.0
        there = self.gradients if isinstance(where, slice) else self.gradients.take(where, 0)
        unit = (delta / np.float64(length)).astype(np.float32)  # whatever finite numbers were sent
        cosines = unit @ there
        return float(cosines.max() + cosines.min()) / 2
