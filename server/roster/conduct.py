"""How often a device is refused for what only a broken or a hostile one sends."""

from collections import deque
from dataclasses import dataclass, field

from edgeflock.shared import errors
from edgeflock.shared.errors import Refused

WINDOW = 60.0
"""Seconds."""

_BLAMED = (
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
"""Any other comes to honest devices, too: after a restart, on a slow line, for an operator's reasons."""


@dataclass(slots=True)
class Conduct:
    """Of one device, over all its sessions."""

    quarantined_until: float = 0.0
    """Unix time."""
    _times: deque[float] = field(default_factory=deque)

    def refused(self, refusal: Refused, most: int, now: float) -> bool:
        """Whether this is one more than `most` within the window, by any clock; then they count anew.

        With 0 there are never too many.
        """
        if not most or not isinstance(refusal, _BLAMED):
            return False
        times = self._times
        times.append(now)
        while times[0] <= now - WINDOW:
            times.popleft()
        if len(times) <= most:
            return False
        times.clear()
        return True
