"""The latest events, in bounded space. A late reader learns how many were dropped."""

from collections import deque
from itertools import islice

from edgeflock.shared.protocol.frames import Event, EventKind

MOST = 1000
"""The most events that are kept."""

_LONGEST = 300
"""The most characters of a text. Devices choose some of the texts."""

_A_SECOND = 5
"""Events per second of each kind that devices may cause, so that they do not displace the others."""

_BY_DEVICES: frozenset[EventKind] = frozenset(("joined", "left", "refused", "paused", "resumed", "round"))


class Events:
    """Events, numbered from 0. The newest are kept."""

    def __init__(self) -> None:
        self.count = 0
        """How many there have been."""
        self._kept: deque[Event] = deque(maxlen=MOST)
        self._second: dict[EventKind, tuple[int, int, int]] = {}
        """kind -> (second, events in it, events left out since then)."""

    def add(self, time: float, kind: EventKind, device: str | None, text: str) -> Event | None:
        """Add an event and return it; None if it is left out."""
        left_out = 0
        if kind in _BY_DEVICES:
            second, events, left_out = self._second.get(kind, (0, 0, 0))
            if second != int(time):
                events = 0
            if events >= _A_SECOND:
                self._second[kind] = second, events, left_out + 1
                return None
            self._second[kind] = int(time), events + 1, 0
        text = "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
        event = Event(time, kind, device, f"{text} (and {left_out:,} more)" if left_out else text)
        self._kept.append(event)
        self.count += 1
        return event

    def since(self, number: int) -> tuple[tuple[Event, ...], int]:
        """(the events from `number` on that are kept, how many of them are not)."""
        oldest = self.count - len(self._kept)
        return tuple(islice(self._kept, max(0, number - oldest), None)), max(0, oldest - number)
