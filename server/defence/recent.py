"""Recent contributors: it limits the share of one device, and of all new devices, in the latest updates."""

from collections import Counter, deque

LATEST = 256
"""How many of the latest versions, or of the latest updates that counted, are considered."""

_QUOTA = 4
"""A device may have this many times the average number of updates of a known device."""

_MIN_QUOTA = 16
"""A device may have this many in any case. New devices together may have a _QUOTA-th, or as many as
others."""

_MAX_AGE = 16 * LATEST
"""Versions after which an update is forgotten in any case."""

KNOWN_STANDING = 1.0
"""A device with this standing is no longer new."""


class RecentUpdates:
    """The latest updates that counted: their devices, and whether these were new."""

    def __init__(self) -> None:
        self._updates: deque[tuple[int, int, bool]] = deque()
        self._all, self._as_known = Counter[int](), Counter[int]()
        """device -> how many of its updates counted lately: all, and those it made while it was known."""
        self._kinds: deque[tuple[int, bool]] = deque()
        self._new = 0
        """How many of the latest updates that counted were from new devices."""

    def add(self, version: int, device: int, counted: bool, new: bool) -> None:
        """Record an update that has made `version`."""
        if counted:
            self._updates.append((version, device, new))
            self._kinds.append((version, new))
            self._count(device, new, 1)
            self._new += new
        while self._updates and self._updates[0][0] <= version - LATEST:
            _, oldest, was_new = self._updates.popleft()
            self._count(oldest, was_new, -1)
        while self._kinds and (len(self._kinds) > LATEST or self._kinds[0][0] <= version - _MAX_AGE):
            self._new -= self._kinds.popleft()[1]

    def may_count(self, device: int, new: bool) -> bool:
        """Whether one more update of `device` may count.

        The average share excludes new devices, because anybody can invent device names.
        """
        fair = _QUOTA * len(self._updates) / max(1, len(self._as_known))
        if self._all[device] >= max(_MIN_QUOTA, fair):
            return False
        limit = LATEST // _QUOTA
        return not new or self._new < limit or len(self._kinds) - self._new < limit

    def _count(self, device: int, new: bool, amount: int) -> None:
        for counts in (self._all,) if new else (self._all, self._as_known):
            counts[device] += amount
            if not counts[device]:
                del counts[device]
