"""How theta moves: what `Parameters` asks for each update, and at the end of each round.

    plain      theta - rate g, in one pass (plain.py)
    optimized  by an optimizer, of one update or of several that wait for each other (optimized.py)

`weight` is how much an update counts, but for the staleness of each parameter, and `rate` the learning rate
of the moment. The sum of a round is a step as well: it is divided by its `samples`. A step that `fits` leaves
every trained parameter a number of at most `most` in magnitude, or, where it was beyond that before, no
further from it.
"""

from typing import Protocol

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

    def fits(self, step: Step, weight: float, rate: float, most: float, samples: int = 1) -> bool:
        """Whether the step may be taken."""

    def take(self, step: Step, weight: float, rate: float, samples: int = 1) -> None:
        """Take it, or let it wait."""
