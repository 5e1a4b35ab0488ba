"""The page of events, the newest last."""

import time
from collections.abc import Sequence

from edgeflock.shared.protocol.frames import Event
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Ink, Line, crop, fit, notice, page

INKS: dict[str, Ink] = {
    "joined": "good",
    "resumed": "good",
    "finished": "good",
    "left": "dim",
    "round": "dim",
    "checkpoint": "first",
    "config": "accent",
    "paused": "accent",
    "dropped": "accent",
    "refused": "warn",
    "warning": "warn",
    "diverged": "bad",
    "finding": "warn",
    "over": "good",
}


def matching(events: Sequence[Event], query: str) -> list[Event]:
    """Return the events that contain every word of the query, in their kind, device or text. `kind:` or
    `device:` before a word restricts it to that field, and `!` excludes events that contain it.
    """
    words = query.lower().split()
    return [event for event in events if all(_holds(event, word) for word in words)]


def _holds(event: Event, word: str) -> bool:
    if word.startswith("!") and len(word) > 1:
        return not _holds(event, word[1:])
    places = {"kind": event.kind, "device": event.device or ""}
    place, colon, sought = word.partition(":")
    if colon and place in places:
        return sought in places[place].lower()
    return word in f"{event.kind} {event.device or ''} {event.text}".lower()


def event_line(event: Event, now: float, width: int) -> Line:
    """Return the time of day (with the date if over 24 hours old), the kind, the device and the text."""
    form, cells = ("%H:%M:%S", 9) if now - event.time < 86400 else ("%d %b %H:%M", 13)
    clock = time.strftime(form, time.localtime(event.time))
    line: Line = [(fit(clock, cells), "dim"), (fit(event.kind, 11), INKS[event.kind])]
    if event.device is not None:
        line.append((numbers.plain(event.device) + "  ", "strong"))
    if event.text != event.kind:
        line.append((numbers.plain(event.text), "text"))
    return line


def place(found: Sequence[Event], chosen: Event | None) -> int:
    """Return how many events are newer than the chosen one. A missing event counts as the oldest."""
    if chosen is None or not found:
        return 0
    return next((at for at, event in enumerate(reversed(found)) if event == chosen), len(found) - 1)


def in_sight(at: int, back: int, total: int, rows: int) -> int:
    """Return how many events to skip at the end, `back` if possible, so that the one at `at` is visible."""
    return max(0, at - rows + 1, min(back, at, total - rows))


def events_page(
    state: MonitorState, found: Sequence[Event], query: str, at: int, back: int, width: int, height: int
) -> list[Line]:
    """Return the `found` events up to `back` lines before the end, and a line about the hidden ones.

    `at` is the number of events that are newer than the chosen one.
    """
    if not found:
        about = f"no event holds {query!r}; esc clears the filter" if query else "nothing has happened yet"
        return notice([[(about, "dim")]], width, height)
    rows = height - 1
    end = len(found) - back
    first = max(0, end - rows)
    parts = [f"{len(found):,} events" + (f" with {query!r}" if query else "")]
    if state.missed_events:
        parts.append(
            f"{state.missed_events:,} were dropped, because they came faster than this link takes them"
        )
    if back:
        parts.append(f"{back:,} newer below")
    lines = [event_line(event, state.time, width) for event in found[first:end]]
    cursor = len(found) - 1 - at - first
    lines[cursor] = crop([("".join(text for text, _ in lines[cursor]).ljust(width), "cursor")], width)
    return page([*lines, *[[]] * (rows - len(lines)), [(", ".join(parts), "dim")]], width, height)
