"""The changes of theta since a follower last took them. The follower is a gateway's copy (server/gateway)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index


class Touched(NamedTuple):
    """The changes of some consecutive versions."""

    counts: list[int] | None
    """How many parameters each version touched; None: all of them."""
    where: NDArray[np.int64]
    """The touched parameters of the first version, then of the second, and so on."""
    values: NDArray[np.float32]
    """The current theta at `where`, then the running statistics; all of theta if `counts` is None."""
    again: bool = False
    """Whether this is another model, so that replicas cannot be updated by a difference."""


class Touches:
    """Records the parameters that versions touch, from its creation on."""

    def __init__(self, parameters: int) -> None:
        """`parameters` is P, the number of trained parameters."""
        self._parameters = parameters
        self._each: list[NDArray[np.int64]] = []
        self._all = self._again = False

    def begin_again(self) -> None:
        """The next version is another model."""
        self._all = self._again = True

    def add(self, touched: Index) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""
        if isinstance(touched, slice):
            self._all = True
        elif not self._all:
            self._each.append(touched)

    def take(self, theta: Entries) -> Touched | None:
        """Return the recorded changes with values of theta (float32 [P + B]), and reset. None: no version."""
        each, everything, again = self._each, self._all, self._again
        self._each, self._all, self._again = [], False, False
        if everything:
            return Touched(None, np.zeros(0, np.int64), theta[:].copy(), again)
        if not each:
            return None
        where = np.concatenate(each)
        statistics = np.arange(self._parameters, theta.size)
        values = np.concatenate((theta[where], theta[statistics]))
        return Touched([one.size for one in each], where, values)
