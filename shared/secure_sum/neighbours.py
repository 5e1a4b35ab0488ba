"""Which devices of a round share masks, and how many of them must stay until its end.

Up to NEIGHBOURS + 1 devices all share masks with all. In a larger round the devices are on a circle, in an
order by their new keys, and each shares with the nearest ones on both sides (Bell et al., CCS 2020, section
3: O(log n) neighbours are enough). Shares of a device's secrets go to its neighbours and to itself.
"""

import math

NEIGHBOURS = 32
"""Even."""


def neighbours(position: int, size: int) -> tuple[int, ...]:
    """Return the positions with which the device at `position` of `size` shares masks, in order.

    >>> neighbours(1, 4)
    (0, 2, 3)
    """
    if size - 1 <= NEIGHBOURS:
        return tuple(other for other in range(size) if other != position)
    half = NEIGHBOURS // 2
    return tuple(sorted((position + step) % size for step in range(-half, half + 1) if step))


def threshold_of(size: int, part: float) -> int:
    """Return how many of a device's neighbours and itself must stay: more than `part` of them, or all.

    More than two thirds hold against a server that lies, with accomplices among less than a third of these
    devices; more than half against one that follows the protocol (Bonawitz et al., section 6.3).

    >>> threshold_of(6, 2 / 3), threshold_of(6, 0.5), threshold_of(3, 2 / 3)
    (5, 4, 3)
    """
    holders = min(size - 1, NEIGHBOURS) + 1
    return min(holders, math.floor(part * holders + 1e-9) + 1)
