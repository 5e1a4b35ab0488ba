"""The lines of the table of devices. Only the visible part is made."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from rich.cells import cell_len

from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.findings import SIGNS, worst
from edgeflock.tui.pages.fleet import COLUMNS, STATES, Column, View, fitting, ink
from edgeflock.tui.pages.query import Labels
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import Ink, Line, apart, fit, notice, page
from edgeflock.tui.text.numbers import plain

MARK = "✓"


@dataclass(frozen=True, slots=True)
class Window:
    """The visible part of the table."""

    cursor: int = 0
    """The position of the chosen row in the selection."""
    top: int = 0
    """The position of the first visible row in the selection."""
    first: int = 0
    """The first visible column after the name."""


def fleet_page(
    state: MonitorState,
    rows: Sequence[DeviceRow],
    rest: Sequence[Column],
    view: View,
    labels: Labels,
    window: Window,
    trouble: str | None,
    width: int,
    height: int,
    marked: Set[int] = frozenset(),
) -> list[Line]:
    """Return the titles, the visible devices, and a line about the selection.

    `rest`: the columns after the name, in order. `trouble`: the filter's error. `marked`: ids of devices.
    """
    if not state.devices:
        about: list[Line] = [
            [("No device has joined yet.", "strong")],
            [],
            [("On each device:  edgeflock client --server URL --token TOKEN --data URI", "dim")],
        ]
        return notice(about, width, height)
    names = name_width(state, width)
    chosen, beyond = fitting(rest, width - 1, window.first, names)
    lines = [_titles(chosen, names, view, window.first, beyond, width)]
    body = height - 2
    for at in range(window.top, window.top + body):
        if at < len(rows):
            row, on_it = rows[at], at == window.cursor
            first = MARK if row.id in marked else "▌" if on_it else " "
            lines.append(
                [
                    (first, "cursor" if on_it else "accent"),
                    *_row(row, chosen, names, state, labels, on_it, width),
                ]
            )
        else:
            lines.append([])
    if not rows:
        lines[1 + body // 2] = [(f"  no device matches {view.query!r}; esc clears the filter", "dim")]
    lines.append(_below(state, rows, view, window, trouble, len(marked), body, width))
    return page(lines, width, height)


def name_width(state: MonitorState, width: int) -> int:
    """Return the width of the longest name, within bounds."""
    wrong = {finding.device for finding in state.overview.findings}
    longest = max(
        (
            cell_len(row.name) + 2 * bool(row.undervoltage) + 2 * (row.name in wrong)
            for row in state.devices.values()
        ),
        default=0,
    )
    return min(max(longest, 8), 16 if width < 100 else 24)


def columns_at(rest: Sequence[Column], first: int, width: int, names: int) -> list[tuple[Column, int, int]]:
    """Return (column, start, end) in cells for each visible column."""
    places: list[tuple[Column, int, int]] = []
    x = 1
    for column in fitting(rest, width - 1, first, names)[0]:
        end = x + (names if column is COLUMNS[0] else column.width)
        places.append((column, x, end))
        x = end + 1
    return places


def _titles(chosen: list[Column], names: int, view: View, first: int, beyond: int, width: int) -> Line:
    line: Line = []
    for column in chosen:
        size = names if column is COLUMNS[0] else column.width
        # The mark is before the title, in the gap if necessary, so that it takes no room from the title.
        mark = ("▼" if view.reverse else "▲") if column.key == view.sort else ""
        gap = "" if mark or column.align == "right" else " "
        line.append((fit(gap + mark + column.title, 1 + size, column.align), "accent" if mark else "dim"))
    more = ("◂" if first else "") + ("▸" if beyond else "")
    return apart(line, [(more, "accent")] if more else [], width)


def _row(
    row: DeviceRow,
    chosen: list[Column],
    names: int,
    state: MonitorState,
    labels: Labels,
    on_it: bool,
    width: int,
) -> Line:
    def of(meaning: Ink) -> Ink:
        return "cursor" if on_it else meaning

    line: Line = []
    wrong = worst(state.overview.findings, row.name)
    for column in chosen:
        size, text, meaning = column.width, column.text(row, state, labels), ink(column, row)
        if column is COLUMNS[0]:
            size = names
            if wrong is not None:
                sign, meaning = SIGNS[wrong.severity]
                text = f"{sign} {text}"
        line += [(fit(text, size, column.align), of(meaning)), (" ", of("text"))]
    used = sum(names if column is COLUMNS[0] else column.width for column in chosen) + len(chosen) + 1
    return [*line, (" " * max(0, width - used), of("text"))]


def _below(
    state: MonitorState,
    rows: Sequence[DeviceRow],
    view: View,
    window: Window,
    trouble: str | None,
    marked: int,
    body: int,
    width: int,
) -> Line:
    if trouble is not None:
        return [(trouble, "bad")]
    parts = [
        f"{len(rows):,} devices" if not view.query else f"{len(rows):,} of {len(state.devices):,} devices"
    ]
    if marked:
        parts.insert(0, f"{marked:,} marked")
    if view.query:
        parts.append(f"filter {plain(view.query)}")
    tally = {name: 0 for name in STATES}
    for row in rows:
        tally[row.state] += 1
    parts += [f"{number:,} {name}" for name, number in tally.items() if number]
    where: Line = []
    if len(rows) > body:
        where = [(f"{window.cursor + 1:,} / {len(rows):,}", "dim")]
    return apart([(" · ".join(parts), "dim")], where, width)


def scrolled(window: Window, total: int, body: int) -> Window:
    """Return the window with its cursor within the rows and visible."""
    cursor = max(0, min(window.cursor, total - 1))
    top = min(max(window.top, cursor - body + 1, 0), cursor, max(0, total - body))
    return Window(cursor, top, max(0, min(window.first, len(COLUMNS) - 2)))
