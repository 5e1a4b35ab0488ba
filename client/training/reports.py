"""Decides which updates carry a report: many at first, later one from time to time."""

from collections.abc import Callable

_MIN_VERSIONS = 160
"""The fewest versions between two reports, after the early ones."""
_EVERY = 4
"""Later reports go only with every fourth update of the device."""


class ReportSchedule:
    """Decides which of a device's updates have a report."""

    def __init__(self, is_early: Callable[[int], bool]) -> None:
        """`is_early` selects updates, counted from 1, that always have a report."""
        self._is_early = is_early
        self._updates = 0
        self._reported = 0
        """The version from which the last update with a report was made."""

    def is_due(self, base: int) -> bool:
        """Return whether the next update, made from version `base`, has a report."""
        self._updates += 1
        is_late = self._updates % _EVERY == 0 and base - self._reported >= _MIN_VERSIONS
        if not (is_late or self._is_early(self._updates)):
            return False
        self._reported = base
        return True
