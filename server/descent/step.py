"""A step: an admitted update, decoded."""

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
    """The running statistics of the device's batches: [B]."""
    samples: int = 1
    """How many samples delta is the mean over, as the device reports."""
    time: float = 0.0
    """The arrival time in the journal: Unix seconds; in a fleet, virtual seconds."""
    beyond: float = 0.0
    """How many times beyond the limit its statistics were; 0: within (Parameters.limited)."""

    def part(self, share: float) -> "Step":
        """Return the part that a defence lets count: share delta_k; for 0, an empty step. A reduced step has
        no running statistics, because the norm of delta does not cover them.
        """
        if share == 1:
            return self
        if not share:
            return replace(self, where=_NOWHERE, delta=_NOTHING, statistics=_NOTHING, samples=0)
        return replace(self, delta=np.float32(share) * self.delta, statistics=_NOTHING)
