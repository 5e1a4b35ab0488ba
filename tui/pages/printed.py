"""A run without a screen: the contents of `edgeflock top` as lines or as JSON."""

from typing import Any

from edgeflock.shared.protocol.frames import COLUMNS, Overview
from edgeflock.tui.pages import fleet
from edgeflock.tui.pages.events import event_line
from edgeflock.tui.pages.findings import finding_line
from edgeflock.tui.pages.header import header
from edgeflock.tui.pages.overview import overview_numbers
from edgeflock.tui.pages.parts import parts
from edgeflock.tui.pages.table import DeviceTable, Window, fleet_page
from edgeflock.tui.sources.state import Freshness, LinkState, MonitorState
from edgeflock.tui.text.lines import Line

_ROWS = ("findings", "gateways", "shards")
"""Fields of an overview that have their own keys."""

_EVENTS = 5
"""The number of newest events."""


def block(state: MonitorState, source: str, width: int) -> list[Line]:
    """Return the screen's header, findings, numbers, parts, full table and newest events.

    `source` is the name of the run, `width` is in cells.
    """
    rows = fleet.select(state, fleet.View())
    columns = fleet.order_columns(rows)
    shown = DeviceTable(rows, columns, fleet.View(), Window(cursor=-1))
    table = fleet_page(state, shown, width, len(rows) + 2)
    events = [event_line(event, state.time, width) for event in state.events[-_EVENTS:]]
    top = header(state, LinkState("live"), Freshness(0.0), source, width)
    findings = [finding_line(finding, state.time) for finding in state.overview.findings]
    gateways = parts(state, width, 3 + len(state.overview.gateways))
    return [
        *(top, *findings, *overview_numbers(state, width), []),
        *([*gateways, []] if gateways else []),
        *(*table, *([[], *events] if events else [])),
    ]


def summary(state: MonitorState) -> dict[str, Any]:
    """Return all that a screen shows, as plain JSON types."""
    overview, run = state.overview, state.run
    return {
        "time": state.time,
        "run": run.run,
        "model": run.model,
        "parameters": run.parameters,
        "updates_target": run.updates_target,
        "role": state.role,
        "overview": {name: getattr(overview, name) for name in Overview.__slots__ if name not in _ROWS},
        "gateways": [gateway._asdict() for gateway in overview.gateways],
        "shards": [shard._asdict() for shard in overview.shards],
        "findings": [finding._asdict() for finding in overview.findings],
        "device_ingress": state.traffic.ingress,
        "device_egress": state.traffic.egress,
        "reduction_both_ways": state.traffic.reduction_both_ways,
        "evaluations": [evaluation._asdict() for evaluation in state.evaluations],
        "devices": [dict(zip(COLUMNS, row, strict=True)) for row in state.devices.values()],
        "events": [event._asdict() for event in state.events],
        "missed_events": state.missed_events,
        "config": run.config,
    }
