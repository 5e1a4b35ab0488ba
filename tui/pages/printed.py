"""A run without a screen: the contents of `edgeflock top` as JSON."""

from typing import Any

from edgeflock.shared.protocol.frames import COLUMNS, Overview
from edgeflock.tui.sources.state import MonitorState

_ROWS = ("findings", "gateways", "shards")
"""Fields of an overview that have their own keys."""


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
