"""A step towards the next theta: what an admitted update comes to."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Where = NDArray[np.int64] | slice
"""Strictly increasing indices of an update, or slice(None) for a dense one."""

_NOTHING = np.zeros(0, np.float32)
_NOWHERE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Step:
    """A decoded, admitted update: delta[i] belongs to parameter where[i]."""

    base: int
    where: Where
    delta: NDArray[np.float32]
    statistics: NDArray[np.float32] = field(default_factory=lambda: _NOTHING)
    """The running statistics that the device's batches came to: [B]."""
    samples: int = 1
    """How many samples delta is the mean over, as the device says."""
    time: float = 0.0
    """When it came, as the journal has it: Unix seconds; in a fleet, virtual ones."""
    beyond: float = 0.0
    """How many times further its statistics went than may count; 0: no further (Parameters.limited)."""

    def part(self, share: float) -> "Step":
        """What of it counts by a defence: share delta_k, and of 0 nothing at all. What is cut short says
        nothing of running statistics, which no norm of delta is of.
        """
        if share == 1:
            return self
        if not share:
            return replace(self, where=_NOWHERE, delta=_NOTHING, statistics=_NOTHING, samples=0)
        return replace(self, delta=np.float32(share) * self.delta, statistics=_NOTHING)
