"""Rates of counts over the last seconds."""

from collections import deque

WINDOW = 10.0
"""Seconds that rates are averaged over, by readings that are"""
INTERVAL = 1.0
"""at least this many seconds apart."""


class RecentRates:
    """Remembers recent counts, for their rates."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, tuple[int, ...]]] = deque()

    def per_second(self, now: float, *counts: int) -> list[float] | None:
        """Add the counts at the monotonic time `now`. Return their rates; None if it is too soon to say."""
        readings = self._readings
        if not readings or now - readings[-1][0] >= INTERVAL:
            readings.append((now, counts))
        while len(readings) > 2 and now - readings[1][0] >= WINDOW:
            readings.popleft()
        start, first = readings[0]
        if now - start < INTERVAL:
            return None
        return [(after - before) / (now - start) for after, before in zip(counts, first, strict=True)]
