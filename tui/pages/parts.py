"""The parts of a run besides its server: gateways and model shards."""

from edgeflock.shared.protocol.frames import GatewayRow
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Ink, Line, Span, crop, fit, heading

_WIDTHS = (9, 11, 12, 10, 10, 6)
"""Widths of a gateway's numbers, in cells."""

_HEADS = ("devices", "updates/s", "received/s", "sent/s", "waiting", "up")

_NAME = 12
"""The minimum width of a gateway's name, in cells."""


def parts(state: MonitorState, width: int, limit: int) -> list[Line]:
    """Return a heading with a line for each gateway, and one for all shards: at most `limit` lines."""
    rows = state.overview.gateways
    shards = [shard_line(state)] if state.overview.shards or state.overview.restored else []
    space = limit - len(shards)
    lines: list[Line] = []
    if rows and space >= 3:
        value: Line = [(_totals(rows), "dim")]
        heads = "".join(fit(name, cells, "right") for name, cells in zip(_HEADS, _WIDTHS, strict=True))
        lines = [heading("Gateways", value, width), [(fit("", _name_width(width)) + heads, "dim")]]
        shown = rows if len(rows) <= space - 2 else rows[: space - 3]
        lines += [_gateway(row, state.time, width) for row in shown]
        if len(shown) < len(rows):
            lines.append([(f"and {len(rows) - len(shown):,} more with fewer devices", "dim")])
    elif rows and space >= 1:
        lines = [[("Gateways ", "strong"), (_totals(rows), "text")]]
    return [crop(line, width) for line in (lines + shards)[: max(0, limit)]]


def shard_line(state: MonitorState) -> Line:
    shards, restored = state.overview.shards, state.overview.restored
    restarts = f", made again {restored:,} time{'s' * (restored > 1)}" if restored else ""
    if not shards:
        return [("Shards ", "strong"), ("are being made again from the journal", "warn"), (restarts, "dim")]
    nodes, sizes = len({shard.node for shard in shards}), [shard.nbytes for shard in shards]
    nodes_text = f" on {nodes:,} node{'s' * (nodes > 1)}"
    largest = f", the largest {numbers.size(max(sizes))}" if len(sizes) > 1 else ""
    text = f"{len(sizes):,}{nodes_text}, {numbers.size(sum(sizes))}{largest}"
    return [("Shards ", "strong"), (text, "text"), (restarts, "warn" if restored else "dim")]


def _totals(rows: tuple[GatewayRow, ...]) -> str:
    devices, waiting = sum(row.devices for row in rows), numbers.size(sum(row.waiting for row in rows))
    rates = [row.updates_per_s for row in rows if row.updates_per_s is not None]
    speed = f", {numbers.rate(sum(rates))}" if rates else ""
    return f"{len(rows):,} with {devices:,} device{'s' * (devices != 1)}{speed} updates/s, {waiting} waiting"


def _gateway(row: GatewayRow, now: float, width: int) -> Line:
    values: list[tuple[str, Ink]] = [
        (numbers.count(row.devices), "strong"),
        (numbers.rate(row.updates_per_s), "third"),
        (numbers.size(row.ingress_rate), "first"),
        (numbers.size(row.egress_rate), "second"),
        (numbers.size(row.waiting), "warn" if row.waiting > _QUEUE_BYTES else "text"),
        (numbers.age(max(0.0, now - row.since)), "dim"),
    ]
    name = fit(numbers.plain(row.name), _name_width(width))
    cells: list[Span] = [
        (fit(text, width, "right"), ink) for (text, ink), width in zip(values, _WIDTHS, strict=True)
    ]
    return [(name, "text"), *cells]


_QUEUE_BYTES = 1 << 20
"""Bytes that wait for a slow gateway. One message holds as many."""


def _name_width(width: int) -> int:
    return max(_NAME, width - sum(_WIDTHS))
