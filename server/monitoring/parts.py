"""The gateways and model shards of a run, for its watchers."""

import time
from collections.abc import Sequence

from edgeflock.server.roster.hub import RecentRates
from edgeflock.server.sessions import GatewayConnection, RunHost
from edgeflock.shared.protocol.frames import GatewayRow, ShardRow


class PartRates:
    """Remembers recent counts of gateways, for their rates."""

    def __init__(self, host: RunHost, lines: Sequence[GatewayConnection]) -> None:
        self._host, self._lines = host, lines
        self._rates: dict[GatewayConnection, RecentRates] = {}

    def gateways(self) -> tuple[GatewayRow, ...]:
        """Return the gateways, those with the most devices first."""
        self._rates = {line: self._rates.get(line, RecentRates()) for line in self._lines}
        now = time.monotonic()
        rows = (row(line, rates, now) for line, rates in self._rates.items())
        return tuple(sorted(rows, key=lambda row: (-row.devices, row.name)))

    def shards(self) -> tuple[ShardRow, ...]:
        parameters = self._host.engine.parameters
        if parameters.store.is_local:
            return ()
        return tuple(ShardRow(shard.node, shard.nbytes) for shard in parameters.store.vectors.shard_statuses)


def row(line: GatewayConnection, rates: RecentRates, now: float) -> GatewayRow:
    """Return the row of a gateway at `now`. Its counts are added to `rates`."""
    recent = rates.per_second(now, line.updates, line.meter.ingress, line.meter.egress)
    updates, ingress, egress = [None] * 3 if recent is None else [round(rate, 2) for rate in recent]
    return GatewayRow(
        line.name, line.address, line.start_time, line.devices, updates, ingress, egress, line.waiting
    )
