"""How theta moves: what `Parameters` asks for each update, and at the end of each round.

    plain      theta - rate g, in one pass (plain.py)
    optimized  by an optimizer, of one update or of several that wait for each other (optimized.py)

`weight` is how much an update counts, but for the staleness of each parameter, and `rate` the learning rate
of the moment; of a round `base` is the version that all of it is of, and `scale` how the rate grows with
its samples. What it `bears` leaves every trained
parameter a number of at most `most` in magnitude, or, where it was beyond that before, no further from it.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.step import Step, Where


class Way(Protocol):
    @property
    def is_over(self) -> bool:
        """Whether it has done what a regime before left to do, and theta moves plainly from now on."""

    def packed_memory(self) -> bytes | None:
        """What steps to come depend on beside theta and its average; None: nothing."""

    def counted(self, base: int, version: int) -> int:
        """base + tau: tau is how often theta has changed from version `base` to `version`."""

    def changes(self, where: Where) -> Where:
        """Which parameters the next version changes, whose update touches these."""

    def bears(self, step: Step, weight: float, rate: float, most: float) -> bool:
        """Whether the step may be taken."""

    def take(self, step: Step, weight: float, rate: float) -> None:
        """Take it, or let it wait."""

    def bears_sum(
        self, where: Where, total: NDArray[np.float32], samples: int, scale: float, rate: float, most: float
    ) -> bool:
        """Whether a round of so many samples may end that has gathered `total` there, in place."""

    def bears_round(self, gathered: Gathered, base: int, scale: float, rate: float, most: float) -> bool:
        """Whether the round may end with all that was gathered."""

    def take_round(self, gathered: Gathered, base: int, scale: float, rate: float) -> None:
        """It ends."""
