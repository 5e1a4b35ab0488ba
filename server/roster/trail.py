"""How a run went since its server started, for curves: in bounded space, the coarser the longer ago."""

from collections import deque

from edgeflock.shared.protocol.frames import Mark

TIERS = ((1.0, 60), (10.0, 360), (300.0, 288))
"""(seconds between two marks, how many are kept): a minute, an hour, a day."""


class Trail:
    """A mark is in each tier that it is time for."""

    def __init__(self) -> None:
        self._tiers = [deque[Mark](maxlen=most) for _, most in TIERS]

    def add(self, mark: Mark) -> None:
        """The next one. A clock that was set back begins anew."""
        if self._tiers[0] and mark.time < self._tiers[0][-1].time:
            for kept in self._tiers:
                kept.clear()
        for kept, (every, _) in zip(self._tiers, TIERS, strict=True):
            # Half a second's leave: whoever adds them comes a little late, and never early.
            if not kept or mark.time - kept[-1].time >= every - 0.5:
                kept.append(mark)

    def rows(self) -> list[Mark]:
        """Oldest first; of each time those of the finest tier that reaches back so far."""
        rows = list(self._tiers[0])
        for coarse in self._tiers[1:]:
            rows = [mark for mark in coarse if not rows or mark.time < rows[0].time] + rows
        return rows
