"""The latest events, in bounded space. A late reader learns how many were dropped."""

from collections import deque
from itertools import islice

from edgeflock.shared.protocol.frames import Event, EventKind

LIMIT = 1000
"""The most events that are kept."""

_LONGEST = 300
"""The most characters of a text. Devices choose some of the texts."""

_PER_SECOND = 5
"""Events per second of each kind that devices may cause, so that they do not displace the others."""

_DEVICE_KINDS: frozenset[EventKind] = frozenset(("joined", "left", "refused", "paused", "resumed", "round"))


class Events:
    """Events, numbered from 0. The newest are kept."""

    def __init__(self) -> None:
        self.count = 0
        """How many there have been."""
        self._events: deque[Event] = deque(maxlen=LIMIT)
        self._second: dict[EventKind, tuple[int, int, int]] = {}
        """kind -> (second, events in it, events left out since then)."""

    def add(self, time: float, kind: EventKind, device: str | None, text: str) -> Event | None:
        """Add an event and return it; None if it is left out."""
        dropped = 0
        if kind in _DEVICE_KINDS:
            second, events, dropped = self._second.get(kind, (0, 0, 0))
            if second != int(time):
                events = 0
            if events >= _PER_SECOND:
                self._second[kind] = second, events, dropped + 1
                return None
            self._second[kind] = int(time), events + 1, 0
        text = "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
        event = Event(time, kind, device, f"{text} (and {dropped:,} more)" if dropped else text)
        self._events.append(event)
        self.count += 1
        return event

    def list_from(self, number: int) -> tuple[tuple[Event, ...], int]:
        """(the events from `number` on that are kept, how many of them are not)."""
        oldest = self.count - len(self._events)
        return tuple(islice(self._events, max(0, number - oldest), None)), max(0, oldest - number)
