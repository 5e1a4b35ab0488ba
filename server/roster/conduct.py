"""Counts how often a device is refused for what only broken or hostile devices send."""

from collections import deque
from dataclasses import dataclass, field

from edgeflock.shared import errors
from edgeflock.shared.errors import Refused

WINDOW = 60.0
"""Seconds."""

_FAULTS = (
    errors.WrongDtype,
    errors.NonFinite,
    errors.BadStatistics,
    errors.IndexMalformed,
    errors.IndexOutOfRange,
    errors.IndexRepeated,
    errors.IndexUnsorted,
    errors.ExpansionTooLarge,
    errors.StepTooLarge,
    errors.BadSamples,
    errors.SequenceAhead,
    errors.NoSuchTask,
    errors.Malformed,
    errors.UnknownRecord,
    errors.UnexpectedRecord,
    errors.FrameTooLarge,
)
"""Honest devices may get any other refusal: after a restart, on a slow line, by an operator's order."""


@dataclass(slots=True)
class Conduct:
    """The conduct of one device, over all its sessions."""

    quarantined_until: float = 0.0
    """Unix time."""
    _times: deque[float] = field(default_factory=deque)

    def count_refusal(self, refusal: Refused, limit: int, now: float) -> bool:
        """Whether this is one more than `limit` in the window, by any clock. Then the count restarts.

        If `limit` is 0 there is no limit.
        """
        if not limit or not isinstance(refusal, _FAULTS):
            return False
        times = self._times
        times.append(now)
        while times[0] <= now - WINDOW:
            times.popleft()
        if len(times) <= limit:
            return False
        times.clear()
        return True
