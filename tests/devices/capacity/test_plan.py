"""How many of each part, what ends first, and where."""

from dataclasses import replace

import pytest

from edgeflock.devices.capacity import CapacityPlan, FleetLoad, Machine, ServerParts, largest_fleet, make_plan

HERE = Machine()
WIDE = Machine(keep_days=0)
"""Where the journal never fills a disk."""


def chosen(fleet: FleetLoad, machine: Machine = WIDE, asked: ServerParts | None = None) -> CapacityPlan:
    return make_plan(fleet, machine, asked or ServerParts(), gateways=True, shards=True)


@pytest.mark.parametrize(
    ("machine", "resource"),
    [
        (Machine(memory=1.5e9, disk=1e12), "memory"),
        (Machine(files=500), "sockets"),
        (Machine(disk=1e9), "disk"),
        (Machine(egress=1000), "network"),
        (Machine(memory=1e12, disk=1e15, files=10**7, egress=1e12), "processor"),
        (replace(WIDE, disk=1e15, memory=1e12, files=10**7), "window"),
    ],
)
def test_the_first_resource_to_end_is_named_and_its_end_found(machine: Machine, resource: str) -> None:
    fleet = FleetLoad(1, 600 if resource == "window" else 10)
    most = largest_fleet(fleet, machine, ServerParts())
    assert most > 0
    fits, more = (make_plan(replace(fleet, devices=most + one), machine, ServerParts()) for one in (0, 1))
    assert fits.fits
    assert not more.fits
    assert (more.bottleneck.part, more.bottleneck.bottleneck) == ("leader", resource)


def test_a_model_that_does_not_fit_takes_no_device() -> None:
    assert largest_fleet(FleetLoad(1, 10, 10**9), Machine(memory=1e9), ServerParts()) == 0


def test_a_small_fleet_needs_one_server() -> None:
    plan = chosen(FleetLoad(1_000, 10))
    assert plan.parts == ServerParts()
    assert plan.processes == 1
    assert plan.gateway_bytes_a_month == 0


def test_as_few_gateways_as_do() -> None:
    fleet = FleetLoad(50_000, 60)
    plan = chosen(fleet, replace(WIDE, files=10_000))
    assert plan.fits
    assert plan.parts.gateways == 8  # at 70% of 10,000 sockets
    fewer = make_plan(fleet, replace(WIDE, files=10_000), ServerParts(gateways=plan.parts.gateways - 1))
    assert max(fewer.needs[1].shares.values()) > 0.7
    assert plan.gateway_bytes_a_month > 0


def test_gateways_let_a_fleet_grow() -> None:
    """Until something ends that they do not help: of a million devices that push each minute one server."""
    fleet, machine = FleetLoad(1, 10), replace(WIDE, disk=1e15)
    alone = largest_fleet(fleet, machine, ServerParts())
    many = largest_fleet(fleet, machine, ServerParts(), gateways=True)
    assert many > 1.5 * alone
    million = chosen(FleetLoad(1_000_000, 60))
    assert not million.fits
    assert million.bottleneck.part == "leader"
    over = {name for name, share in million.needs[0].shares.items() if share > 1}
    assert over == {"window", "network", "processor"}


def test_shards_where_a_model_does_not_fit_and_only_there() -> None:
    large = FleetLoad(100, 60, 100_000_000)
    small = Machine(memory=8e9, keep_days=0)
    plan = chosen(large, small)
    assert plan.parts.shards >= 2
    leads, apart = plan.needs[0], next(need for need in plan.needs if need.part == "shard")
    assert leads.shares["memory"] < make_plan(large, small, ServerParts()).needs[0].shares["memory"]
    assert apart.shares["memory"] <= 0.7
    assert chosen(large, Machine(memory=64e9, keep_days=0)).parts.shards == 0
    assert chosen(FleetLoad(1_000_000, 60)).parts.shards == 0  # they would take the leader longer


def test_a_number_that_is_given_is_kept() -> None:
    plan = make_plan(FleetLoad(100, 10), HERE, ServerParts(gateways=3, shards=2))
    assert (plan.parts.gateways, plan.parts.shards) == (3, 2)
    assert plan.processes == 1 + 3 + 2
