"""When a device adds a report to an update: often while it is new to the run, later now and then."""

from collections.abc import Callable

_VERSIONS = 160
"""Versions of the model from one late report to the next, at least, and"""
_UPDATES = 4
"""updates of the device."""


class ReportSchedule:
    """Which of a device's updates have a report."""

    def __init__(self, is_early: Callable[[int], bool]) -> None:
        """`is_early` says which of its updates, counted from 1, have one in any case."""
        self._is_early = is_early
        self._updates = 0
        self._reported = 0
        """The version from which the last update with a report was made."""

    def is_due(self, base: int) -> bool:
        """Whether the next update, made from version `base`, has one."""
        self._updates += 1
        is_late = self._updates % _UPDATES == 0 and base - self._reported >= _VERSIONS
        if not (is_late or self._is_early(self._updates)):
            return False
        self._reported = base
        return True
