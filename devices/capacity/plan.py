"""How many of each part a fleet takes, what ends first, and how large the fleet may become."""

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
"""Of a gateway's or a shard's resources what may be taken, where their number is chosen."""

MOST = 1024
"""More gateways and shards than this are not looked at."""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Parts, and what each of them comes to."""

    fleet: FleetLoad
    machine: Machine
    parts: ServerParts
    needs: list[Need]

    @property
    def first(self) -> Need:
        """The part that ends first."""
        return max(self.needs, key=lambda need: need.shares[need.first])

    @property
    def fits(self) -> bool:
        return self.first.shares[self.first.first] <= 1

    @property
    def cores(self) -> float:
        """Busy in the mean, all processes together."""
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
        """From devices, with TLS, TCP and IP; and"""
        return self.fleet.rate * MONTH * (up_bytes(self.fleet) + around(self.fleet))

    @property
    def egress_a_month(self) -> float:
        """to them."""
        return self.fleet.rate * MONTH * (down_bytes(self.fleet, self.parts) + around(self.fleet))

    @property
    def between_a_month(self) -> float:
        """Between gateways and the leader, both ways."""
        if not self.parts.gateways:
            return 0.0
        told, heard = self.needs[0].egress, self.needs[1].egress * self.parts.carrying
        return MONTH * (told + heard) - self.egress_a_month


def plan_of(
    fleet: FleetLoad, machine: Machine, asked: ServerParts, *, gateways: bool = False, shards: bool = False
) -> CapacityPlan:
    """What `asked` comes to; with the fewest `gateways` and `shards` that do, if their numbers are to be
    chosen: none, if the server does without. If no number does, as many as leave what cannot be helped."""
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
    """Gateways beyond which another one helps no more: what each of them follows fills it."""
    before, count = math.inf, 1
    while count < MOST:
        one = gateway(fleet, machine, replace(parts, gateways=count + parts.spare))
        if one.shares[one.first] > 0.9 * before:
            break
        before, count = one.shares[one.first], 2 * count
    return count


def _shards(fleet: FleetLoad, machine: Machine, parts: ServerParts, *, through: bool) -> int:
    """Where the model does not fit into one process, or its step takes too long there."""
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
    """From `from_` on; `most` if none is."""
    return next((count for count in range(from_, most) if enough(count)), most)


def largest(
    fleet: FleetLoad, machine: Machine, asked: ServerParts, *, gateways: bool = False, shards: bool = False
) -> int:
    """How many such devices there can be; 0 if not even one."""

    def fits(devices: int) -> bool:
        return plan_of(replace(fleet, devices=devices), machine, asked, gateways=gateways, shards=shards).fits

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
