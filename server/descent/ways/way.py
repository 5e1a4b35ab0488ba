"""The interface by which `Parameters` applies each update, and each round at its end.

    plain      theta - rate g, in one pass (plain.py)
    optimized  with an optimizer, from one update or several that wait for each other (optimized.py)

`weight` is the weight of an update without the per-parameter staleness. `rate` is the current learning rate.
The sum of a round is also a step: it is divided by its `samples`. A step `fits` if it leaves every trained
parameter finite and at most `limit` in magnitude. One beyond `limit` before must not move further away.
"""

from typing import Protocol

from edgeflock.server.descent.step import Index, Step


class Stepper(Protocol):
    @property
    def is_finished(self) -> bool:
        """Whether the updates left by an earlier regime are applied, and plain steps follow."""

    def packed_memory(self) -> bytes | None:
        """Encode the optimizer's state; None if there is none."""

    def effective_base(self, base: int, version: int) -> int:
        """Return base + tau; tau is how often theta changed from version `base` to `version`."""

    def changed_indices(self, indices: Index) -> Index:
        """Return the parameters that the next version changes, if its update touches `indices`."""

    def fits(self, step: Step, weight: float, rate: float, limit: float, samples: int = 1) -> bool:
        """Whether the step may be taken."""

    def take(self, step: Step, weight: float, rate: float, samples: int = 1) -> None:
        """Apply the step, or add it to the waiting updates."""
