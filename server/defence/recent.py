"""Recent contributors: it limits the share of one device, and of all new devices, in the latest updates."""

from collections import Counter, deque

LATEST = 256
"""How many of the latest versions, or of the latest updates that counted, are considered."""

_PART = 4
"""A device may have this many times the average number of updates of a known device."""

_SOME = 16
"""A device may have this many in any case. New devices together may have a _PART-th, or as many as others."""

_LONG = 16 * LATEST
"""Versions after which an update is forgotten in any case."""

KNOWN = 1.0
"""A device with this standing is no longer new."""


class RecentUpdates:
    """The latest updates that counted: their devices, and whether these were new."""

    def __init__(self) -> None:
        self._made: deque[tuple[int, int, bool]] = deque()
        self._all, self._known = Counter[int](), Counter[int]()
        """device -> how many of its updates counted lately: all, and those it made while it was known."""
        self._kinds: deque[tuple[int, bool]] = deque()
        self._new = 0
        """How many of the latest updates that counted were from new devices."""

    def add(self, version: int, device: int, counted: bool, new: bool) -> None:
        """Record an update that has made `version`."""
        if counted:
            self._made.append((version, device, new))
            self._kinds.append((version, new))
            self._count(device, new, 1)
            self._new += new
        while self._made and self._made[0][0] <= version - LATEST:
            _, gone, was_new = self._made.popleft()
            self._count(gone, was_new, -1)
        while self._kinds and (len(self._kinds) > LATEST or self._kinds[0][0] <= version - _LONG):
            self._new -= self._kinds.popleft()[1]

    def may_count(self, device: int, new: bool) -> bool:
        """Whether one more update of `device` may count. The average share excludes new devices, because
        anybody can invent device names.
        """
        fair = _PART * len(self._made) / max(1, len(self._known))
        if self._all[device] >= max(_SOME, fair):
            return False
        most = LATEST // _PART
        return not new or self._new < most or len(self._kinds) - self._new < most

    def _count(self, device: int, new: bool, by: int) -> None:
        for counts in (self._all,) if new else (self._all, self._known):
            counts[device] += by
            if not counts[device]:
                del counts[device]
