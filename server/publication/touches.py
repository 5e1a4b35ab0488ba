"""What of theta has changed since whoever follows it was told last (a gateway's copy: server/gateway)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Where


class Touched(NamedTuple):
    """Of some versions in a row."""

    counts: list[int] | None
    """How many parameters each version touched; None: all of them."""
    where: NDArray[np.int64]
    """Those of the first version, then those of the second, ..."""
    values: NDArray[np.float32]
    """theta there now, and the running statistics behind it; all of theta if `counts` is None."""
    again: bool = False
    """Whether it is another model now, which no difference leads to."""


class Touches:
    """Gathers what versions touch, from the moment that it is made."""

    def __init__(self, parameters: int) -> None:
        """Of a model with so many."""
        self._parameters = parameters
        self._each: list[NDArray[np.int64]] = []
        self._all = self._again = False

    def begin_again(self) -> None:
        """The next version is another model."""
        self._all = self._again = True

    def add(self, touched: Where) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""
        if isinstance(touched, slice):
            self._all = True
        elif not self._all:
            self._each.append(touched)

    def take(self, theta: Entries) -> Touched | None:
        """What was gathered, as theta (float32 [P + B]) is now; None: no version was made. It begins anew."""
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
