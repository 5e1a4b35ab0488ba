"""How large updates usually are: the median of the latest that counted, in O(log n) an update."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

LATEST = 256
"""Updates that are remembered."""

_FEW = 16
"""While fewer are known, the smallest of them is what is usual: the first ones may be anybody's."""


class Norms:
    """Of the latest updates, as they counted: one that was cut short is no larger than its cap, so that
    nobody drives the median up from beyond it.
    """

    def __init__(self, norms: Iterable[float] = ()) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        for norm in norms:
            self.add(norm)

    def add(self, norm: float) -> None:
        """One more. What changes nothing does not count."""
        if not norm:
            return
        if len(self._latest) == LATEST:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(norm)
        insort(self._sorted, norm)

    @property
    def usual(self) -> float:
        """0: none is known."""
        count = len(self._sorted)
        if not count:
            return 0.0
        return self._sorted[0 if count < _FEW else count // 2]
