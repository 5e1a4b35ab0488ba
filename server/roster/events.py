"""What has happened lately, in bounded space: whoever reads too late learns how much was dropped."""

from collections import deque
from itertools import islice

from edgeflock.shared.protocol.frames import Event, EventKind

MOST = 1000
"""Events that are kept."""

_LONGEST = 300
"""Characters of a text, some of which devices choose."""

_A_SECOND = 5
"""Events of each kind that devices may cause a second: a crowd of them must not crowd out the rest."""

_BY_DEVICES: frozenset[EventKind] = frozenset(("joined", "left", "refused", "paused", "resumed", "round"))


class Events:
    """Numbered from 0; the newest ones are there."""

    def __init__(self) -> None:
        self.count = 0
        """How many there have been."""
        self._kept: deque[Event] = deque(maxlen=MOST)
        self._second: dict[EventKind, tuple[int, int, int]] = {}
        """kind -> (second, events in it, events since that were left out)."""

    def add(self, time: float, kind: EventKind, device: str | None, text: str) -> Event | None:
        """The event; None if it is one more that is left out."""
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
