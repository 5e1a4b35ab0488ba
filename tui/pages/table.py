"""The lines of the table of devices. Only the visible part is made."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from rich.cells import cell_len

from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.findings import SIGNS, worst_finding
from edgeflock.tui.pages.fleet import COLUMNS, STATES, Column, View, fit_columns, ink
from edgeflock.tui.pages.query import Labels
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import Ink, Line, fit, justify, notice, page
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
    columns: Sequence[Column],
    view: View,
    labels: Labels,
    window: Window,
    error: str | None,
    width: int,
    height: int,
    marked: Set[int] = frozenset(),
) -> list[Line]:
    """Return the titles, the visible devices, and a line about the selection.

    `columns`: the columns after the name, in order. `error`: the filter's error. `marked`: ids of devices.
    """
    if not state.devices:
        about: list[Line] = [
            [("No device has joined yet.", "strong")],
            [],
            [("On each device:  edgeflock client --server URL --token TOKEN --data URI", "dim")],
        ]
        return notice(about, width, height)
    names = name_width(state, width)
    chosen, hidden = fit_columns(columns, width - 1, window.first, names)
    lines = [_titles(chosen, names, view, window.first, hidden, width)]
    body = height - 2
    for index in range(window.top, window.top + body):
        if index < len(rows):
            row, is_chosen = rows[index], index == window.cursor
            first = MARK if row.id in marked else "▌" if is_chosen else " "
            lines.append(
                [
                    (first, "cursor" if is_chosen else "accent"),
                    *_row(row, chosen, names, state, labels, is_chosen, width),
                ]
            )
        else:
            lines.append([])
    if not rows:
        lines[1 + body // 2] = [(f"  no device matches {view.query!r}; esc clears the filter", "dim")]
    lines.append(_footer(state, rows, view, window, error, len(marked), body, width))
    return page(lines, width, height)


def name_width(state: MonitorState, width: int) -> int:
    """Return the width of the longest name, within bounds."""
    named = {finding.device for finding in state.overview.findings}
    longest = max(
        (
            cell_len(row.name) + 2 * bool(row.undervoltage) + 2 * (row.name in named)
            for row in state.devices.values()
        ),
        default=0,
    )
    return min(max(longest, 8), 16 if width < 100 else 24)


def column_positions(
    columns: Sequence[Column], first: int, width: int, names: int
) -> list[tuple[Column, int, int]]:
    """Return (column, start, end) in cells for each visible column."""
    places: list[tuple[Column, int, int]] = []
    x = 1
    for column in fit_columns(columns, width - 1, first, names)[0]:
        end = x + (names if column is COLUMNS[0] else column.width)
        places.append((column, x, end))
        x = end + 1
    return places


def _titles(chosen: list[Column], names: int, view: View, first: int, hidden: int, width: int) -> Line:
    line: Line = []
    for column in chosen:
        size = names if column is COLUMNS[0] else column.width
        # The mark is before the title, in the gap if necessary, so that it takes no room from the title.
        mark = ("▼" if view.reverse else "▲") if column.key == view.sort else ""
        gap = "" if mark or column.align == "right" else " "
        line.append((fit(gap + mark + column.title, 1 + size, column.align), "accent" if mark else "dim"))
    more = ("◂" if first else "") + ("▸" if hidden else "")
    return justify(line, [(more, "accent")] if more else [], width)


def _row(
    row: DeviceRow,
    chosen: list[Column],
    names: int,
    state: MonitorState,
    labels: Labels,
    is_chosen: bool,
    width: int,
) -> Line:
    def cell_ink(meaning: Ink) -> Ink:
        return "cursor" if is_chosen else meaning

    line: Line = []
    finding = worst_finding(state.overview.findings, row.name)
    for column in chosen:
        size, text, meaning = column.width, column.text(row, state, labels), ink(column, row)
        if column is COLUMNS[0]:
            size = names
            if finding is not None:
                sign, meaning = SIGNS[finding.severity]
                text = f"{sign} {text}"
        line += [(fit(text, size, column.align), cell_ink(meaning)), (" ", cell_ink("text"))]
    used = sum(names if column is COLUMNS[0] else column.width for column in chosen) + len(chosen) + 1
    return [*line, (" " * max(0, width - used), cell_ink("text"))]


def _footer(
    state: MonitorState,
    rows: Sequence[DeviceRow],
    view: View,
    window: Window,
    error: str | None,
    marked: int,
    body: int,
    width: int,
) -> Line:
    if error is not None:
        return [(error, "bad")]
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
    position: Line = []
    if len(rows) > body:
        position = [(f"{window.cursor + 1:,} / {len(rows):,}", "dim")]
    return justify([(" · ".join(parts), "dim")], position, width)


def scroll(window: Window, total: int, body: int) -> Window:
    """Return the window with its cursor within the rows and visible."""
    cursor = max(0, min(window.cursor, total - 1))
    top = min(max(window.top, cursor - body + 1, 0), cursor, max(0, total - body))
    return Window(cursor, top, max(0, min(window.first, len(COLUMNS) - 2)))
