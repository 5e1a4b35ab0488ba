"""A capacity plan as text and as JSON."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from edgeflock.devices.capacity.fleet import WIDEST
from edgeflock.devices.capacity.need import (
    Need,
    copies_bytes,
    down_bytes,
    journal_bytes_a_day,
    snapshots,
    spilled_bytes,
    up_bytes,
    whole_bytes,
)
from edgeflock.devices.capacity.plan import CapacityPlan
from edgeflock.devices.capacity.storm import Storm
from edgeflock.shared.numbers import size


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices for a month, in any currency."""

    core: float = 0.0
    egress_gb: float = 0.0
    disk_gb: float = 0.0

    def of(self, plan: CapacityPlan) -> float:
        return (
            plan.cores * self.core
            + plan.egress_a_month / 1e9 * self.egress_gb
            + plan.disk_bytes / 1e9 * self.disk_gb
        )


def lines(
    plan: CapacityPlan, storm: Storm, ends_at: int, alone_at: int, prices: Prices
) -> Iterator[tuple[str, str]]:
    """Yield (what, how much) lines. Such fleets end at `ends_at` devices, with one server at `alone_at`."""
    fleet, machine, parts = plan.fleet, plan.machine, plan.parts
    yield (
        "updates",
        f"{fleet.rate:,.1f} a second of {fleet.sent:,} entries; coordination.window {fleet.window:,}"
        + (f", the most there can be, for a fleet of {fleet.devices:,}" if fleet.working > WIDEST else "")
        + (f"; {fleet.working:,} devices work at a time" if fleet.working < fleet.devices else ""),
    )
    for need in plan.needs:
        yield _name(need), _of(need)
    carrying = plan.needs[1].count - parts.spare if parts.gateways else 1
    carried = math.ceil(fleet.devices / carrying)
    copies = carrying * spilled_bytes(copies_bytes(fleet, parts, carried))
    yield (
        "disk",
        f"{size(plan.disk_bytes)}: journal {size(journal_bytes_a_day(fleet))} a day for "
        f"{machine.keep_days:g} days, snapshots {size(snapshots(fleet))}, what devices hold {size(copies)}",
    )
    yield "up", f"{up_bytes(fleet):,.0f} B an update; ingress {size(plan.ingress_a_month)} a month"
    yield "down", f"{down_bytes(fleet, parts):,.0f} B an answer; egress {size(plan.egress_a_month)} a month"
    if parts.gateways:
        yield "between", f"gateways and leader, both ways {size(plan.between_a_month)} a month"
    yield (
        "a month",
        f"{plan.cores:.2f} cores busy in {plan.processes:,} process{'es' * (plan.processes > 1)}, "
        f"{size(plan.memory_bytes)} of memory" + (f"; {prices.of(plan):,.2f}" if prices != Prices() else ""),
    )
    first = plan.first
    yield (
        "ends first",
        f"{first.part}: {first.first}; with such parts at {ends_at:,} devices"
        + (f", one server alone at {alone_at:,}" if alone_at != ends_at else ""),
    )
    yield from _beyond(plan, ends_at)
    yield (
        "outage",
        f"of {storm.outage:g} s for {storm.devices:,}: half are back {storm.half_seconds:,.1f} s after it, "
        f"all after {storm.last_seconds:,.1f} s, {storm.longest_queue:,} at once in a queue; "
        f"{size(storm.devices * whole_bytes(fleet, parts))} more down if what they held is forgotten",
    )


SHOWN = 0.01
"""The smallest share of a resource that is shown."""

NEXT = {
    "processor": "fewer updates: a longer period, or more local steps an update",
    "window": "beyond it updates are too old, and made twice: a fresher model when a device trains",
    "memory": "a smaller model or more memory",
    "disk": "older updates may go (--days 0), or a larger disk",
    "network": "fewer gateways, fewer entries or a faster line",
    "sockets": "more gateways or open files",
    "rows": "a faster database",
}
"""The remedy for each resource that runs out."""


def _beyond(plan: CapacityPlan, ends_at: int) -> Iterator[tuple[str, str]]:
    """Yield the resources that do not fit, and how many separate runs would."""
    over = [
        (need, name, share)
        for need in plan.needs
        for name, share in sorted(need.shares.items(), key=lambda item: -item[1])
        if share > 1
    ]
    for need, name, share in over:
        yield "too much", f"{need.part}: {name} {share:.0%}; {NEXT[name]}"
    if over and ends_at:
        runs = -(-plan.fleet.devices // ends_at)
        yield "separate", f"{runs:,} runs of such parts, a model each"


def _name(need: Need) -> str:
    return need.part if need.count == 1 else f"{need.count} {need.part}s"


def _of(need: Need) -> str:
    """Describe a need, with the shares of the resources that it takes, the largest first."""
    shares = sorted(need.shares.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {_percent(share)}" for name, share in shares if share >= SHOWN)
    busy = f"{need.cores:.0%} of a core, {size(need.memory_bytes)}; " if need.memory_bytes else ""
    each = "each " if need.count > 1 else ""
    return f"{each}{busy}takes {told or f'less than {SHOWN:.0%} of anything'}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def as_json(
    plan: CapacityPlan, storm: Storm, ends_at: int, alone_at: int, prices: Prices
) -> dict[str, object]:
    """Return the plan and the storm as values for JSON."""
    fleet = plan.fleet
    return {
        "updates_per_second": fleet.rate,
        "window": fleet.window,
        "parts": [asdict(need) for need in plan.needs],
        "up_bytes": up_bytes(fleet),
        "down_bytes": down_bytes(fleet, plan.parts),
        "journal_bytes_a_day": journal_bytes_a_day(fleet),
        "disk_bytes": plan.disk_bytes,
        "memory_bytes": plan.memory_bytes,
        "cores": plan.cores,
        "processes": plan.processes,
        "ingress_bytes_a_month": plan.ingress_a_month,
        "egress_bytes_a_month": plan.egress_a_month,
        "between_bytes_a_month": plan.between_a_month,
        "ends_first": [plan.first.part, plan.first.first],
        "fits": plan.fits,
        "ends_at_devices": ends_at,
        "alone_ends_at_devices": alone_at,
        "storm": asdict(storm),
        "price_a_month": prices.of(plan),
    }
