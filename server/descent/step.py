"""A step: an admitted update, decoded."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64] | slice
"""Strictly increasing indices of an update, or slice(None) for a dense one."""

_NO_VALUES = np.zeros(0, np.float32)
_NO_INDICES = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Step:
    """A decoded, admitted update: delta[i] belongs to parameter indices[i]."""

    base: int
    indices: Index
    delta: NDArray[np.float32]
    statistics: NDArray[np.float32] = field(default_factory=lambda: _NO_VALUES)
    """The running statistics of the device's batches: [B]."""
    samples: int = 1
    """How many samples delta is the mean over, as the device reports."""
    time: float = 0.0
    """The arrival time in the journal: Unix seconds; in a fleet, virtual seconds."""
    excess: float = 0.0
    """How many times beyond the limit its statistics were; 0: within (Parameters.limited)."""

    def scaled(self, share: float) -> "Step":
        """Return the part that a defence lets count: share delta_k; for 0, an empty step.

        A reduced step has no running statistics, because the norm of delta does not cover them.
        """
        if share == 1:
            return self
        if not share:
            return replace(self, indices=_NO_INDICES, delta=_NO_VALUES, statistics=_NO_VALUES, samples=0)
        return replace(self, delta=np.float32(share) * self.delta, statistics=_NO_VALUES)
