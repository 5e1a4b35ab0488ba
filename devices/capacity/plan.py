"""A capacity plan: the number of each part, the part that ends first, and the largest possible fleet."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgeflock.devices.capacity.fleet import MONTH, FleetLoad, Machine, ServerParts
from edgeflock.devices.capacity.need import (
    Need,
    around,
    down_bytes,
    gateway,
    leader,
    needs_of,
    shard,
    up_bytes,
)

FULL = 0.7
"""The part of a gateway's or a shard's resources that may be taken, if their number is chosen here."""

MOST = 1024
"""The search stops at this number of gateways or shards."""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The parts of a run, and what each of them needs."""

    fleet: FleetLoad
    machine: Machine
    parts: ServerParts
    needs: list[Need]

    @property
    def first(self) -> Need:
        """The part that reaches its limit first."""
        return max(self.needs, key=lambda need: need.shares[need.first])

    @property
    def fits(self) -> bool:
        return self.first.shares[self.first.first] <= 1

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
        return self.fleet.rate * MONTH * (up_bytes(self.fleet) + around(self.fleet))

    @property
    def egress_a_month(self) -> float:
        """Bytes a month to devices, with TLS, TCP and IP."""
        return self.fleet.rate * MONTH * (down_bytes(self.fleet, self.parts) + around(self.fleet))

    @property
    def between_a_month(self) -> float:
        """Bytes a month between gateways and the leader, both ways."""
        if not self.parts.gateways:
            return 0.0
        told, heard = self.needs[0].egress, self.needs[1].egress * self.parts.carrying
        return MONTH * (told + heard) - self.egress_a_month


def plan_of(
    fleet: FleetLoad, machine: Machine, asked: ServerParts, *, gateways: bool = False, shards: bool = False
) -> CapacityPlan:
    """Return the plan for `asked`. `gateways` and `shards` choose the smallest sufficient number of each, or
    none if the server suffices. If no number suffices, the plan has as many as still help."""
    parts = asked
    if shards:
        parts = replace(parts, shards=_shards(fleet, machine, parts, through=gateways))
    if gateways:
        parts = replace(parts, gateways=_gateways(fleet, machine, parts))
    return CapacityPlan(fleet, machine, parts, needs_of(fleet, machine, parts))


def _gateways(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> int:
    direct = leader(fleet, machine, replace(parts, gateways=0))
    if all(direct.shares[name] <= FULL for name in ("processor", "memory", "network", "sockets")):
        return 0

    def enough(count: int) -> bool:
        one = gateway(fleet, machine, replace(parts, gateways=count + parts.spare))
        return one.shares[one.first] <= FULL

    return _fewest(enough, 1, least(fleet, machine, parts)) + parts.spare


def least(fleet: FleetLoad, machine: Machine, parts: ServerParts) -> int:
    """Return the number of gateways beyond which more do not help: the changes that each follows fill it."""
    before, count = math.inf, 1
    while count < MOST:
        one = gateway(fleet, machine, replace(parts, gateways=count + parts.spare))
        if one.shares[one.first] > 0.9 * before:
            break
        before, count = one.shares[one.first], 2 * count
    return count


def _shards(fleet: FleetLoad, machine: Machine, parts: ServerParts, *, through: bool) -> int:
    """Return how many model shards are needed if one process lacks memory or time for the model, else 0."""
    alone = replace(parts, shards=0, gateways=max(parts.gateways, int(through)))
    one, apart = (leader(fleet, machine, replace(alone, shards=count)) for count in (0, 2))
    too_much = [name for name, most in (("memory", FULL), ("processor", 1)) if one.shares[name] > most]
    if not any(apart.shares[name] < one.shares[name] for name in too_much):
        return 0

    def enough(count: int) -> bool:
        each = shard(fleet, machine, replace(alone, shards=count))
        return each.shares[each.first] <= FULL

    return _fewest(enough, 2, MOST)


def _fewest(enough: Callable[[int], bool], from_: int, most: int) -> int:
    """Return the smallest number from `from_` that is enough, or `most`."""
    return next((count for count in range(from_, most) if enough(count)), most)


def largest(
    fleet: FleetLoad, machine: Machine, asked: ServerParts, *, gateways: bool = False, shards: bool = False
) -> int:
    """Return the largest possible number of such devices, 0 if not even one fits."""

    def fits(devices: int) -> bool:
        return plan_of(replace(fleet, devices=devices), machine, asked, gateways=gateways, shards=shards).fits

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
