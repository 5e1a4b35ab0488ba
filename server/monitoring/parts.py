"""The gateways and model shards of a run, for its watchers."""

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from edgeflock.server.sessions import GatewayConnection, RunHost
from edgeflock.shared.protocol.frames import GatewayRow, ShardRow

_WINDOW_SECONDS = 10.0
"""Seconds that rates are averaged over, by readings that are"""
_INTERVAL_SECONDS = 1.0
"""at least this many seconds apart."""


class GatewayReading(NamedTuple):
    """The counts of a gateway at a time, in seconds of a monotonic clock."""

    time: float
    updates: int
    ingress: int
    egress: int


class PartRates:
    """Remembers recent counts of gateways, for their rates."""

    def __init__(self, host: RunHost, lines: Sequence[GatewayConnection]) -> None:
        self._host, self._lines = host, lines
        self._readings: dict[GatewayConnection, deque[GatewayReading]] = {}

    def gateways(self) -> tuple[GatewayRow, ...]:
        """Return the gateways, those with the most devices first."""
        self._readings = {line: self._readings.get(line, deque()) for line in self._lines}
        now = time.monotonic()
        rows = (row(line, readings, now) for line, readings in self._readings.items())
        return tuple(sorted(rows, key=lambda row: (-row.devices, row.name)))

    def shards(self) -> tuple[ShardRow, ...]:
        parameters = self._host.engine.parameters
        if parameters.store.is_local:
            return ()
        return tuple(ShardRow(shard.node, shard.nbytes) for shard in parameters.store.vectors.shard_statuses)


def row(line: GatewayConnection, readings: deque[GatewayReading], now: float) -> GatewayRow:
    """Return the row of a gateway at `now`. Its counts are added to `readings`."""
    reading = GatewayReading(now, line.updates, line.meter.ingress, line.meter.egress)
    if not readings or now - readings[-1].time >= _INTERVAL_SECONDS:
        readings.append(reading)
    while len(readings) > 2 and now - readings[1].time >= _WINDOW_SECONDS:
        readings.popleft()
    oldest, seconds = readings[0], now - readings[0].time

    def rate(after: int, before: int) -> float | None:
        return round((after - before) / seconds, 2) if seconds >= _INTERVAL_SECONDS else None

    return GatewayRow(
        line.name,
        line.address,
        line.start_time,
        line.devices,
        rate(reading.updates, oldest.updates),
        rate(reading.ingress, oldest.ingress),
        rate(reading.egress, oldest.egress),
        line.waiting,
    )
