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


def filter_events(events: Sequence[Event], query: str) -> list[Event]:
    """Return the events that contain every word of the query, in their kind, device or text.

    `kind:` or `device:` before a word restricts it to that field, and `!` excludes events that contain it.
    """
    words = query.lower().split()
    return [event for event in events if all(_contains(event, word) for word in words)]


def _contains(event: Event, word: str) -> bool:
    if word.startswith("!") and len(word) > 1:
        return not _contains(event, word[1:])
    fields = {"kind": event.kind, "device": event.device or ""}
    field, colon, word_part = word.partition(":")
    if colon and field in fields:
        return word_part in fields[field].lower()
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


def cursor_index(events: Sequence[Event], chosen: Event | None) -> int:
    """Return how many events are newer than the chosen one. A missing event counts as the oldest."""
    if chosen is None or not events:
        return 0
    return next((index for index, event in enumerate(reversed(events)) if event == chosen), len(events) - 1)


def scroll_to(cursor: int, skipped: int, total: int, rows: int) -> int:
    """Return how many events to skip at the end, `skipped` if that shows the one at `cursor`."""
    return max(0, cursor - rows + 1, min(skipped, cursor, total - rows))


def events_page(
    state: MonitorState,
    events: Sequence[Event],
    query: str,
    index: int,
    skipped: int,
    width: int,
    height: int,
) -> list[Line]:
    """Return the events up to `skipped` lines before the end, and a line about the hidden ones.

    `index` is the number of events that are newer than the chosen one.
    """
    if not events:
        about = f"no event contains {query!r}; esc clears the filter" if query else "nothing has happened yet"
        return notice([[(about, "dim")]], width, height)
    rows = height - 1
    end = len(events) - skipped
    first = max(0, end - rows)
    parts = [f"{len(events):,} event{'s' * (len(events) != 1)}" + (f" with {query!r}" if query else "")]
    if state.missed_events:
        parts.append(f"{state.missed_events:,} were dropped: they came faster than this connection can send")
    if skipped:
        parts.append(f"{skipped:,} newer below")
    lines = [event_line(event, state.time, width) for event in events[first:end]]
    cursor = len(events) - 1 - index - first
    lines[cursor] = crop([("".join(text for text, _ in lines[cursor]).ljust(width), "cursor")], width)
    return page([*lines, *[[]] * (rows - len(lines)), [(", ".join(parts), "dim")]], width, height)
