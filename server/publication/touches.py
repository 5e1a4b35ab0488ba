"""The changes of theta since a follower last took them. The follower is a gateway's copy (server/gateway)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index


class Changes(NamedTuple):
    """The changes of some consecutive versions."""

    counts: list[int] | None
    """How many parameters parts version touched; None: all of them."""
    indices: NDArray[np.int64]
    """The touched parameters of the first version, then of the second, and so on."""
    values: NDArray[np.float32]
    """The current theta at `indices`, then the running statistics; all of theta if `counts` is None."""
    is_reset: bool = False
    """Whether this is another model, so that replicas cannot be updated by a difference."""


class ChangeRecorder:
    """Records the parameters that versions touch, from its creation on."""

    def __init__(self, parameters: int) -> None:
        """`parameters` is P, the number of trained parameters."""
        self._parameters = parameters
        self._indices: list[NDArray[np.int64]] = []
        self._all = self._is_reset = False

    def reset(self) -> None:
        """The next version is another model."""
        self._all = self._is_reset = True

    def add(self, indices: Index) -> None:
        """The next version was made by an update that changed the parameters at `indices`."""
        if isinstance(indices, slice):
            self._all = True
        elif not self._all:
            self._indices.append(indices)

    def take(self, theta: Entries) -> Changes | None:
        """Return the recorded changes with values of theta (float32 [P + B]), and reset. None: no version."""
        parts, everything, is_reset = self._indices, self._all, self._is_reset
        self._indices, self._all, self._is_reset = [], False, False
        if everything:
            return Changes(None, np.zeros(0, np.int64), theta[:].copy(), is_reset)
        if not parts:
            return None
        indices = np.concatenate(parts)
        statistics = np.arange(self._parameters, theta.size)
        values = np.concatenate((theta[indices], theta[statistics]))
        return Changes([one.size for one in parts], indices, values)
