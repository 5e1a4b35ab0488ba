"""A run's history since its server started, for curves. Space is bounded, so older marks are sparser."""

from collections import deque

from edgeflock.shared.protocol.frames import Mark

TIERS = ((1.0, 60), (10.0, 360), (300.0, 288))
"""(seconds between two marks, how many are kept): a minute, an hour, a day."""


class Trail:
    """The marks, in tiers. Each tier takes a mark when its interval has passed."""

    def __init__(self) -> None:
        self._tiers = [deque[Mark](maxlen=limit) for _, limit in TIERS]

    def add(self, mark: Mark) -> None:
        """Add the next mark. If the clock was set back, start again."""
        if self._tiers[0] and mark.time < self._tiers[0][-1].time:
            for tier in self._tiers:
                tier.clear()
        for tier, (every, _) in zip(self._tiers, TIERS, strict=True):
            # The caller adds marks a little late and never early, so allow half a second.
            if not tier or mark.time - tier[-1].time >= every - 0.5:
                tier.append(mark)

    def rows(self) -> list[Mark]:
        """All marks, oldest first. Each time has the marks of the finest tier that reaches back to it."""
        rows = list(self._tiers[0])
        for coarse in self._tiers[1:]:
            rows = [mark for mark in coarse if not rows or mark.time < rows[0].time] + rows
        return rows
