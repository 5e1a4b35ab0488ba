"""Who moved the model lately: no device, and not all new ones together, may have too much of that."""

from collections import Counter, deque

LATEST = 256
"""Versions, or updates that counted, that are looked at."""

_PART = 4
"""A device may have so many times its share of them, where all that are known had as much,"""

_SOME = 16
"""and so many in any case. New devices together may have one of _PART, once others have as much."""

_LONG = 16 * LATEST
"""Versions after which nobody's updates are remembered."""

KNOWN = 1.0
"""Who stands as high is no longer new."""


class RecentUpdates:
    """The updates that counted lately: whose they were, and whether those were new ones."""

    def __init__(self) -> None:
        self._made: deque[tuple[int, int, bool]] = deque()
        self._all, self._known = Counter[int](), Counter[int]()
        """device -> its updates that counted, of the latest versions: all, and those of known ones."""
        self._kinds: deque[tuple[int, bool]] = deque()
        self._new = 0
        """Of new ones, of the latest that counted."""

    def add(self, version: int, device: int, counted: bool, new: bool) -> None:
        """An update has made a version."""
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
        """Whether one more of a device's may. Names are anybody's to choose: new ones are no measure of what
        the share of a device is.
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
