"""A capacity plan as text and as JSON."""

import math
from collections.abc import Iterator
from dataclasses import asdict

from edgeflock.devices.capacity.fleet import MAX_WINDOW
from edgeflock.devices.capacity.need import (
    Need,
    answer_bytes,
    copies_bytes,
    journal_bytes_a_day,
    snapshot_bytes,
    spilled_bytes,
    update_bytes,
)
from edgeflock.devices.capacity.plan import CapacityPlan
from edgeflock.shared.numbers import size


def lines(plan: CapacityPlan, limit: int, single_limit: int) -> Iterator[tuple[str, str]]:
    """Yield (name, text) lines. The parts suffice for `limit` devices, one server for `single_limit`."""
    fleet, machine, parts = plan.fleet, plan.machine, plan.parts
    yield (
        "updates",
        f"{fleet.rate:,.1f} a second of {fleet.sent_entries:,} entries; coordination.window {fleet.window:,}"
        + (f", its maximum; {fleet.devices:,} devices need more" if fleet.active > MAX_WINDOW else "")
        + (f"; {fleet.active:,} devices work at a time" if fleet.active < fleet.devices else ""),
    )
    for need in plan.needs:
        yield need.part if need.count == 1 else f"{need.count} {need.part}s", _usage(need)
    holders = parts.gateways or 1
    carried = math.ceil(fleet.devices / holders)
    copies = holders * spilled_bytes(copies_bytes(fleet, parts, carried))
    yield (
        "disk",
        f"{size(plan.disk_bytes)}: journal {size(journal_bytes_a_day(fleet))} a day for "
        f"{machine.keep_days:g} days, snapshots {size(snapshot_bytes(fleet))}, replicas {size(copies)}",
    )
    yield "up", f"{update_bytes(fleet):,.0f} B an update; ingress {size(plan.ingress_a_month)} a month"
    yield "down", f"{answer_bytes(fleet, parts):,.0f} B an answer; egress {size(plan.egress_a_month)} a month"
    if parts.gateways:
        yield "between", f"{size(plan.gateway_bytes_a_month)} a month between gateways and leader, both ways"
    yield (
        "a month",
        f"{plan.cores:.2f} cores busy in {plan.processes:,} process{'es' * (plan.processes > 1)}, "
        f"{size(plan.memory_bytes)} of memory",
    )
    first = plan.bottleneck
    yield (
        "limit",
        f"{first.part}: {first.bottleneck} runs out first; these parts suffice for {limit:,} devices"
        + (f", one server alone for {single_limit:,}" if single_limit != limit else ""),
    )
    yield from _exceeded(plan, limit)


SMALLEST = 0.01
"""The smallest share of a resource that is shown."""

REMEDIES = {
    "processor": "send fewer updates: set a longer period, or more local steps",
    "window": "updates become too old and are computed again; let devices train on a fresher model",
    "memory": "use a smaller model or more memory",
    "disk": "keep the journal for fewer --days, or use a larger disk",
    "network": "use fewer gateways, fewer entries or a faster network",
    "sockets": "use more gateways, or allow more open files (ulimit -n)",
    "rows": "use a faster database",
}
"""The remedy for each resource that runs out."""


def _exceeded(plan: CapacityPlan, limit: int) -> Iterator[tuple[str, str]]:
    """Yield the resources that do not suffice, and how many separate runs would."""
    exceeded = [
        (need, name, share)
        for need in plan.needs
        for name, share in sorted(need.shares.items(), key=lambda item: -item[1])
        if share > 1
    ]
    for need, name, share in exceeded:
        yield "exceeded", f"{need.part}: {name} {share:.0%}; {REMEDIES[name]}"
    if exceeded and limit:
        runs = -(-plan.fleet.devices // limit)
        yield "alternative", f"{runs:,} separate runs with these parts, each with a model of its own"


def _usage(need: Need) -> str:
    """Describe a need, with the shares of the resources that it takes, the largest first."""
    shares = sorted(need.shares.items(), key=lambda item: -item[1])
    usage = ", ".join(
        f"{name} {share:.0%}" if share >= 0.1 else f"{name} {share:.1%}"
        for name, share in shares
        if share >= SMALLEST
    )
    busy = f"{need.cores:.0%} of a core, {size(need.memory_bytes)}; " if need.memory_bytes else ""
    each = "each " if need.count > 1 else ""
    return f"{each}{busy}uses {usage or f'less than {SMALLEST:.0%} of every resource'}"


def as_json(plan: CapacityPlan, limit: int, single_limit: int) -> dict[str, object]:
    fleet = plan.fleet
    return {
        "updates_per_second": fleet.rate,
        "window": fleet.window,
        "parts": [asdict(need) for need in plan.needs],
        "up_bytes": update_bytes(fleet),
        "down_bytes": answer_bytes(fleet, plan.parts),
        "journal_bytes_a_day": journal_bytes_a_day(fleet),
        "disk_bytes": plan.disk_bytes,
        "memory_bytes": plan.memory_bytes,
        "cores": plan.cores,
        "processes": plan.processes,
        "ingress_bytes_a_month": plan.ingress_a_month,
        "egress_bytes_a_month": plan.egress_a_month,
        "between_bytes_a_month": plan.gateway_bytes_a_month,
        "ends_first": [plan.bottleneck.part, plan.bottleneck.bottleneck],
        "fits": plan.fits,
        "ends_at_devices": limit,
        "alone_ends_at_devices": single_limit,
    }
