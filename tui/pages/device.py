"""The page of one device: its facts, its curves and its events."""

from collections.abc import Sequence

from edgeflock.shared.protocol.frames import DeviceRow, Point
from edgeflock.tui.pages.events import event_line
from edgeflock.tui.pages.findings import device_findings
from edgeflock.tui.pages.fleet import COLUMNS, STATES, ink
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.chart import Axis, Series, chart, duration_ceiling, fit_axis, label_width
from edgeflock.tui.text.lines import Ink, Line, fit, heading, join_blocks, justify, page

_FORMATS = {"loss": numbers.decimal, "staleness": numbers.count, "bytes": numbers.size}
_FACTS = 30
"""The width of the column of facts, in cells."""


def device_page(
    state: MonitorState, row: DeviceRow, points: Sequence[Point], width: int, height: int
) -> list[Line]:
    """Return facts on the left, curves on the right, and the device's events below if there is room."""
    sign, state_ink = STATES[row.state]
    reason = row.paused_because or (row.why_left if row.state == "away" else None)
    status = f"{sign} {row.state}" + (f": {numbers.plain(reason)}" if reason else "")
    title: Line = [(numbers.plain(row.name), "strong"), ("  " + status, state_ink)]
    events = [event for event in state.events if event.device == row.name]
    event_rows = min(6, len(events)) if height >= 30 else 0
    findings = device_findings(state.overview.findings, row.name, state.time, width) if height >= 20 else []
    body = height - 2 - len(findings) - (event_rows + 2 if event_rows else 0)
    graphs = width - _FACTS - 3
    lines = [justify(title, [("esc back", "dim")], width), *findings, []]
    lines += join_blocks([(_facts(state, row, body), _FACTS), (_graphs(points, graphs, body), graphs)], gap=3)
    if event_rows:
        lines += [[], heading("Its events", [], width)]
        lines += [event_line(event, state.time, width) for event in events[-event_rows:]]
    return page(lines, width, height)


def _facts(state: MonitorState, row: DeviceRow, height: int) -> list[Line]:
    """Return the table's columns without those of the title, and the facts of this page only."""
    facts: list[tuple[str, str, Ink]] = [
        (column.title, column.text(row, state), ink(column, row))
        for column in COLUMNS
        if column.key not in ("name", "state", "paused_because")
    ]
    facts += [
        ("samples", numbers.count(row.samples), "text"),
        ("compressed", numbers.count(row.compressed), "text"),
    ]
    if row.undervoltage is not None:
        low = row.undervoltage
        facts.append(("power", "UNDER-VOLTAGE" if low else "ok", "bad" if low else "text"))
    # Unknown facts are left out first, if there is not enough room.
    if len(facts) > height:
        facts = [fact for fact in facts if fact[1] != numbers.NOTHING]
    return [
        [(fit(name, 12), "dim"), (fit(value.strip(), _FACTS - 12, "right"), meaning)]
        for name, value, meaning in facts[:height]
    ] + [[]] * max(0, height - len(facts))


def _graphs(points: Sequence[Point], width: int, height: int) -> list[Line]:
    each = height // 3
    if len(points) < 2:
        return [
            heading("Loss", [], width),
            *[[]] * max(0, height // 2 - 2),
            [("no history yet".center(width), "dim")],
        ]
    now, start = points[-1].time, points[0].time
    x = Axis(-duration_ceiling(now - start), 0.0, lambda s: "last" if s == 0 else f"-{numbers.span(-s)}")
    lines: list[Line] = []
    panels: tuple[tuple[str, str, Ink], ...] = (
        ("Loss", "loss", "first"),
        ("Staleness", "staleness", "third"),
        ("Received", "bytes", "second"),
    )
    known = {
        field: [(p.time - now, float(value)) for p in points if (value := getattr(p, field)) is not None]
        for _, field, _ in panels
    }
    axes = {
        field: fit_axis(
            [value for _, value in history],
            numbers.short_size if field == "bytes" else numbers.short,
            zero=field != "bytes",
        )
        for field, history in known.items()
    }
    gutter = max(label_width(y) for y in axes.values())  # one moment is one column in all three
    for number, (title, field, meaning) in enumerate(panels):
        rows = each if number < 2 else height - 2 * each
        if not known[field]:
            lines += [heading(title, [("not reported", "dim")], width), *[[]] * (rows - 1)]
            continue
        times, values = zip(*known[field], strict=True)
        last: Line = [(_FORMATS[field](values[-1]), meaning)]
        lines.append(heading(title, last, width))
        lines += chart([Series(times, values, meaning)], x, axes[field], width, rows - 1, gutter=gutter)
    return lines
