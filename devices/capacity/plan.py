"""A capacity plan: the number of each part, the part that ends first, and the largest possible fleet."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgeflock.devices.capacity.fleet import MONTH, FleetLoad, Machine, ServerParts
from edgeflock.devices.capacity.need import (
    Need,
    answer_bytes,
    estimate_needs,
    gateway,
    leader,
    packet_bytes,
    shard,
    update_bytes,
)

MAX_LOAD = 0.7
"""The part of a gateway's or a shard's resources that may be taken, if their number is chosen here."""

MAX_PARTS = 1024
"""The search stops at this number of gateways or shards."""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The parts of a run, and what each of them needs."""

    fleet: FleetLoad
    machine: Machine
    parts: ServerParts
    needs: list[Need]

    @property
    def bottleneck(self) -> Need:
        """The part that reaches its limit first."""
        return max(self.needs, key=lambda need: need.shares[need.bottleneck])

    @property
    def fits(self) -> bool:
        return self.bottleneck.shares[self.bottleneck.bottleneck] <= 1

    @property
    def cores(self) -> float:
        """Cores that are busy on average, over all processes."""
        return sum(need.count * need.cores for need in self.needs)

    @property
    def processes(self) -> int:
        return sum(need.count for need in self.needs)

    @property
    def memory_bytes(self) -> float:
        return sum(need.count * need.memory_bytes for need in self.needs)

    @property
    def disk_bytes(self) -> float:
        return sum(need.count * need.disk_bytes for need in self.needs)

    @property
    def ingress_a_month(self) -> float:
        """Bytes a month from devices, with TLS, TCP and IP."""
        return self.fleet.rate * MONTH * (update_bytes(self.fleet) + packet_bytes(self.fleet))

    @property
    def egress_a_month(self) -> float:
        """Bytes a month to devices, with TLS, TCP and IP."""
        return self.fleet.rate * MONTH * (answer_bytes(self.fleet, self.parts) + packet_bytes(self.fleet))

    @property
    def gateway_bytes_a_month(self) -> float:
        """Bytes a month between gateways and the leader, both ways."""
        if not self.parts.gateways:
            return 0.0
        sent, received = self.needs[0].egress, self.needs[1].egress * self.parts.gateways
        return MONTH * (sent + received) - self.egress_a_month


def make_plan(
    fleet: FleetLoad, machine: Machine, parts: ServerParts, *, gateways: bool = False, shards: bool = False
) -> CapacityPlan:
    """Return the plan for `parts`. `gateways` and `shards` choose the smallest sufficient number of each.

    The number is 0 if the server suffices. If no number suffices, the plan has as many as still help.
    """
    if shards:
        parts = replace(parts, shards=_choose_shards(fleet, machine, parts, relayed=gateways))
    if gateways:
        parts = replace(parts, gateways=_choose_gateways(fleet, machine, parts))
    return CapacityPlan(fleet, machine, parts, estimate_needs(fleet, machine, parts))


def _choose_gateways(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> int:
    direct = leader(fleet, machine, replace(parts, gateways=0))
    if all(direct.shares[name] <= MAX_LOAD for name in ("processor", "memory", "network", "sockets")):
        return 0

    def suffices(count: int) -> bool:
        one = gateway(fleet, machine, replace(parts, gateways=count))
        return one.shares[one.bottleneck] <= MAX_LOAD

    return _smallest(suffices, 1, useful_gateways(fleet, machine, parts))


def useful_gateways(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> int:
    """Return the number of gateways beyond which more do not help: the changes that each follows fill it."""
    before, count = math.inf, 1
    while count < MAX_PARTS:
        one = gateway(fleet, machine, replace(parts, gateways=count))
        if one.shares[one.bottleneck] > 0.9 * before:
            break
        before, count = one.shares[one.bottleneck], 2 * count
    return count


def _choose_shards(fleet: FleetLoad, machine: Machine, parts: ServerParts, *, relayed: bool) -> int:
    """Return how many model shards are needed if one process lacks memory or time for the model, else 0."""
    alone = replace(parts, shards=0, gateways=max(parts.gateways, int(relayed)))
    one, sharded = (leader(fleet, machine, replace(alone, shards=count)) for count in (0, 2))
    too_much = [name for name, limit in (("memory", MAX_LOAD), ("processor", 1)) if one.shares[name] > limit]
    if not any(sharded.shares[name] < one.shares[name] for name in too_much):
        return 0

    def suffices(count: int) -> bool:
        each = shard(fleet, machine, replace(alone, shards=count))
        return each.shares[each.bottleneck] <= MAX_LOAD

    return _smallest(suffices, 2, MAX_PARTS)


def _smallest(suffices: Callable[[int], bool], start: int, limit: int) -> int:
    """Return the smallest number from `start` that suffices, or `limit`."""
    return next((count for count in range(start, limit) if suffices(count)), limit)


def largest_fleet(
    fleet: FleetLoad, machine: Machine, parts: ServerParts, *, gateways: bool = False, shards: bool = False
) -> int:
    """Return the largest possible number of such devices, 0 if not even one fits."""

    def fits(devices: int) -> bool:
        larger = replace(fleet, devices=devices)
        return make_plan(larger, machine, parts, gateways=gateways, shards=shards).fits

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
