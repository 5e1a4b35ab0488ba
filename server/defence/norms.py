"""How large updates usually are, and how far they differ from it, of the latest that counted."""

from bisect import bisect_left, insort
from collections import deque
from math import inf

LATEST = 256
"""Updates that are remembered."""

HELD = 8
"""So many must be known before anything is usual: the first ones may be anybody's."""

_FEW = 16
"""While fewer are known, a quarter of them are no larger than what is usual: few can make that large, and not
one alone can make it small.
"""


class UsualNorms:
    """Of the latest updates, as they are `remembered` (rules.py): within what was usual allows, so that few
    drive the median up or down. Sorted, in O(log n) an update.
    """

    def __init__(self, held: int = HELD) -> None:
        self._held = held
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

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
        """Their median; 0: too few are known; infinity: none is, nor waited for."""
        count = len(self._sorted)
        if count < self._held:
            return 0.0
        if not count:
            return inf
        return self._sorted[count // 4 if count < _FEW else count // 2]

    @property
    def spread(self) -> float:
        """The smallest r with which more than half of them lie within u / r and u r, u the median: the
        exponential of the median absolute deviation of their logarithms. 1: while few are known.

        Of those i are below u and the others above: the more below, the farther the one and the nearer the
        other end. A search by halves finds the i at which the lower end begins to be farther.
        """
        values, count = self._sorted, len(self._sorted)
        if count < _FEW:
            return 1.0
        middle = count // 2
        usual, top = values[middle], 2 * middle
        least, most = 0 if top < count else 1, middle
        while least < most:
            i = (least + most) // 2
            if usual / values[middle - i] >= values[top - i] / usual:
                most = i
            else:
                least = i + 1
        below = usual / values[middle - least]
        return min(below, values[top - least + 1] / usual) if top - least + 1 < count else below
