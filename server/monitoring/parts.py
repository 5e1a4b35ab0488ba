"""The gateways and model shards of a run, for its watchers."""

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from edgeflock.server.sessions import GatewayLine, RunHost
from edgeflock.shared.protocol.frames import GatewayRow, ShardRow

_OVER = 10.0
"""Seconds that rates are averaged over, by readings that are"""
_APART = 1.0
"""at least this many seconds apart."""


class GatewayReading(NamedTuple):
    """The counts of a gateway at a time, in seconds of a monotonic clock."""

    time: float
    updates: int
    ingress: int
    egress: int


class PartRates:
    """Remembers recent counts of gateways, for their rates."""

    def __init__(self, host: RunHost, lines: Sequence[GatewayLine]) -> None:
        self._host, self._lines = host, lines
        self._read: dict[GatewayLine, deque[GatewayReading]] = {}

    def gateways(self) -> tuple[GatewayRow, ...]:
        """Return the gateways, those with the most devices first."""
        self._read = {line: self._read.get(line, deque()) for line in self._lines}
        now = time.monotonic()
        rows = (row(line, read, now) for line, read in self._read.items())
        return tuple(sorted(rows, key=lambda row: (-row.devices, row.name)))

    def shards(self) -> tuple[ShardRow, ...]:
        parameters = self._host.engine.parameters
        if parameters.store.is_local:
            return ()
        return tuple(ShardRow(shard.node, shard.nbytes) for shard in parameters.store.vectors.shard_statuses)


def row(line: GatewayLine, read: deque[GatewayReading], now: float) -> GatewayRow:
    """Return the row of a gateway at `now`. Its counts are added to `read`."""
    reading = GatewayReading(now, line.updates, line.meter.ingress, line.meter.egress)
    if not read or now - read[-1].time >= _APART:
        read.append(reading)
    while len(read) > 2 and now - read[1].time >= _OVER:
        read.popleft()
    then, seconds = read[0], now - read[0].time

    def rate(after: int, before: int) -> float | None:
        return round((after - before) / seconds, 2) if seconds >= _APART else None

    return GatewayRow(
        line.name,
        line.address,
        line.since,
        line.devices,
        rate(reading.updates, then.updates),
        rate(reading.ingress, then.ingress),
        rate(reading.egress, then.egress),
        line.waiting,
    )
