"""The usual norm of the latest updates, and the spread of their norms."""

from bisect import bisect_left, insort
from collections import deque
from math import inf

LATEST = 256
"""How many norms are stored."""

MIN_NORMS = 8
"""How many norms must be known before there is a usual norm: the first updates may come from any device."""

_MEDIAN_COUNT = 16
"""While fewer norms are known, the usual norm is their lower quartile. A few updates can then not make it
large, and one alone can not make it small.
"""


class UsualNorms:
    """The norms of the latest updates, as `norm_to_record` (rules.py) limits them.

    The limits keep a few updates from moving the median. The norms are sorted; the search for a place is
    O(log n) an update.
    """

    def __init__(self, min_norms: int = MIN_NORMS) -> None:
        self._min_norms = min_norms
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, norm: float) -> None:
        """Add a norm. A norm of 0 is ignored."""
        if not norm:
            return
        if len(self._latest) == LATEST:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(norm)
        insort(self._sorted, norm)

    @property
    def usual(self) -> float:
        """The median norm, or the lower quartile of few. 0: too few are known. inf: none known or needed."""
        count = len(self._sorted)
        if count < self._min_norms:
            return 0.0
        if not count:
            return inf
        return self._sorted[count // 4 if count < _MEDIAN_COUNT else count // 2]

    @property
    def spread(self) -> float:
        """The smallest r for which more than half of the norms are between u / r and u r, u the median.

        It is the exponential of the median absolute deviation of their logarithms. 1 while few are known.

        i of these norms are below u, the others above. As i grows, the lower end moves away from u and the
        upper end comes closer. A binary search finds the i at which the lower end becomes the farther one.
        """
        values, count = self._sorted, len(self._sorted)
        if count < _MEDIAN_COUNT:
            return 1.0
        middle = count // 2
        usual, top = values[middle], 2 * middle
        low, high = 0 if top < count else 1, middle
        while low < high:
            i = (low + high) // 2
            if usual / values[middle - i] >= values[top - i] / usual:
                high = i
            else:
                low = i + 1
        below = usual / values[middle - low]
        return min(below, values[top - low + 1] / usual) if top - low + 1 < count else below
