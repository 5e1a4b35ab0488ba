"""A fleet's need in words."""

from collections.abc import Iterator
from dataclasses import dataclass

from edgeflock.devices.capacity.need import Fleet, Machine, Need
from edgeflock.devices.capacity.storm import Storm
from edgeflock.devices.numbers import size


@dataclass(frozen=True, slots=True)
class Prices:
    """A month's, in any currency."""

    core: float = 0.0
    egress_gb: float = 0.0
    disk_gb: float = 0.0

    def of(self, need: Need) -> float:
        return (
            need.cores * self.core
            + need.egress_bytes_a_month / 1e9 * self.egress_gb
            + need.disk_bytes / 1e9 * self.disk_gb
        )


def lines(
    fleet: Fleet, machine: Machine, need: Need, storm: Storm, ends_at: int, prices: Prices
) -> Iterator[tuple[str, str]]:
    """(what, how much) of each."""
    yield (
        "updates",
        f"{need.updates_per_second:,.1f} a second, {need.push_seconds * 1e6:,.0f} us each at a busy server",
    )
    yield "core", f"{need.cores:.0%} busy; {need.shares['cores']:.0%} of the updates that one writer can take"
    yield "memory", _of(size(need.memory_bytes), need, "memory", size(machine.memory))
    yield (
        "disk",
        _of(size(need.disk_bytes), need, "disk", size(machine.disk))
        + (
            f": journal {size(need.journal_bytes_a_day)} a day for {machine.keep_days:g} days, "
            f"snapshots {size(need.snapshot_bytes)}, what devices hold {size(need.copies_bytes)}"
        ),
    )
    yield "up", f"{need.up_bytes:,.0f} B an update; ingress {size(need.ingress_bytes_a_month)} a month"
    yield "down", f"{need.down_bytes:,.0f} B an answer; egress {size(need.egress_bytes_a_month)} a month"
    yield "sockets", _of(f"{need.sockets:,}", need, "sockets", f"{machine.files:,} open files")
    yield "ends first", f"{need.first}; one server ends at {ends_at:,} such devices"
    if ends_at < fleet.devices:
        runs = f"{-(-fleet.devices // ends_at)} separate runs" if ends_at else "none takes them"
        yield "more servers", f"{runs}; or gateways for the sockets, not reckoned here (docs/scale.md)"
    yield (
        "outage",
        f"of {storm.outage:g} s: half are back {storm.half_seconds:,.1f} s after it, all after "
        f"{storm.last_seconds:,.1f} s, {storm.longest_queue:,} at once in the queue",
    )
    if prices != Prices():
        yield "a month", f"{prices.of(need):,.2f}"


def _of(used: str, need: Need, name: str, there: str) -> str:
    return f"{used}, {need.shares[name]:.0%} of {there}"
