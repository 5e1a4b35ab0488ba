"""The lines of the table of devices. Only the visible part is made."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from rich.cells import cell_len

from edgeflock.shared.protocol.frames import DeviceRow
from edgeflock.tui.pages.findings import SIGNS, worst_finding
from edgeflock.tui.pages.fleet import COLUMNS, STATES, Column, View, fit_columns, ink
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


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """What the table shows, and how."""

    rows: Sequence[DeviceRow]
    """The selected devices, in order."""
    columns: Sequence[Column]
    """The columns after the name, in order."""
    view: View
    window: Window
    error: str | None = None
    """The filter's error."""
    marked: Set[int] = frozenset()
    """Ids of devices."""


def fleet_page(state: MonitorState, table: DeviceTable, width: int, height: int) -> list[Line]:
    """Return the titles, the visible devices, and a line about the selection."""
    if not state.devices:
        about: list[Line] = [
            [("No device has joined yet.", "strong")],
            [],
            [("On each device:  edgeflock client --server URL --token TOKEN --data URI", "dim")],
        ]
        return notice(about, width, height)
    rows, window = table.rows, table.window
    chosen, hidden = fit_columns(table.columns, width - 1, window.first, name_width(state, width))
    lines = [_titles(chosen, table.view, window.first, hidden, width)]
    body = height - 2
    for index in range(window.top, window.top + body):
        if index < len(rows):
            lines.append(_row(rows[index], chosen, state, table, index == window.cursor, width))
        else:
            lines.append([])
    if not rows:
        lines[1 + body // 2] = [(f"  no device matches {table.view.query!r}; esc clears the filter", "dim")]
    lines.append(_footer(state, table, body, width))
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
    for column, size in fit_columns(columns, width - 1, first, names)[0]:
        places.append((column, x, x + size))
        x += size + 1
    return places


def _titles(chosen: Sequence[tuple[Column, int]], view: View, first: int, hidden: int, width: int) -> Line:
    line: Line = []
    for column, size in chosen:
        # The mark is before the title, in the gap if necessary, so that it takes no room from the title.
        mark = ("▼" if view.reverse else "▲") if column.key == view.sort else ""
        gap = "" if mark or column.align == "right" else " "
        line.append((fit(gap + mark + column.title, 1 + size, column.align), "accent" if mark else "dim"))
    more = ("◂" if first else "") + ("▸" if hidden else "")
    return justify(line, [(more, "accent")] if more else [], width)


def _row(
    row: DeviceRow,
    chosen: Sequence[tuple[Column, int]],
    state: MonitorState,
    table: DeviceTable,
    is_chosen: bool,
    width: int,
) -> Line:
    def cell_ink(meaning: Ink) -> Ink:
        return "cursor" if is_chosen else meaning

    mark = MARK if row.id in table.marked else "▌" if is_chosen else " "
    line: Line = [(mark, cell_ink("accent"))]
    finding = worst_finding(state.overview.findings, row.name)
    for column, size in chosen:
        text, meaning = column.text(row, state), ink(column, row)
        if column is COLUMNS[0] and finding is not None:
            sign, meaning = SIGNS[finding.severity]
            text = f"{sign} {text}"
        line += [(fit(text, size, column.align), cell_ink(meaning)), (" ", cell_ink("text"))]
    used = sum(size for _, size in chosen) + len(chosen) + 1
    return [*line, (" " * max(0, width - used), cell_ink("text"))]


def _footer(state: MonitorState, table: DeviceTable, body: int, width: int) -> Line:
    if table.error is not None:
        return [(table.error, "bad")]
    rows, query, every = table.rows, table.view.query, len(state.devices)
    parts = [f"{len(rows):,}{f' of {every:,}' if query else ''} device{'s' * (every != 1)}"]
    if table.marked:
        parts.insert(0, f"{len(table.marked):,} marked")
    if query:
        parts.append(f"filter {plain(query)}")
    tally: Counter[str] = Counter(row.state for row in rows)
    parts += [f"{tally[name]:,} {name}" for name in STATES if tally[name]]
    position: Line = []
    if len(rows) > body:
        position = [(f"{table.window.cursor + 1:,} / {len(rows):,}", "dim")]
    return justify([(" · ".join(parts), "dim")], position, width)


def scroll(window: Window, total: int, body: int) -> Window:
    """Return the window with its cursor within the rows and visible."""
    cursor = max(0, min(window.cursor, total - 1))
    top = min(max(window.top, cursor - body + 1, 0), cursor, max(0, total - body))
    return Window(cursor, top, max(0, min(window.first, len(COLUMNS) - 2)))
