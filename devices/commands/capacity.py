"""`edgeflock capacity`: what a server needs for a fleet, and where one server ends."""

from typing import Annotated

import typer

from edgeflock.devices.commands.options import Json


def capacity(
    devices: Annotated[int, typer.Option(min=1, help="Devices that are connected.")],
    period: Annotated[
        float, typer.Option(min=0.001, help="Seconds from one update of a device to its next.")
    ],
    parameters: Annotated[int, typer.Option(min=1, help="Of the model.")] = 211_690,
    entries: Annotated[
        int, typer.Option(min=0, help="Of an update and of its answer; 0: the root of the parameters.")
    ] = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Without TLS.")] = False,
    memory: Annotated[float, typer.Option(min=0.1, help="GB that the server may take.")] = 24,
    disk: Annotated[float, typer.Option(min=0.1, help="GB.")] = 100,
    files: Annotated[int, typer.Option(min=1, help="Open files of a process.")] = 65_536,
    egress: Annotated[float, typer.Option(min=0.001, help="Gbit/s to the network.")] = 1,
    days: Annotated[float, typer.Option(min=0, help="For which the disk must take the journal.")] = 30,
    outage: Annotated[float, typer.Option(min=0, help="Seconds for which all lose the server.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of their return.")] = 0,
    core_price: Annotated[float, typer.Option(min=0, help="Of a core a month.")] = 0,
    egress_price: Annotated[float, typer.Option(min=0, help="Of a GB to the network.")] = 0,
    disk_price: Annotated[float, typer.Option(min=0, help="Of a GB of disk a month.")] = 0,
    json: Json = False,
) -> None:
    """Reckon what one server needs for so many devices, what ends first, and how they return after an outage.

    From measured costs; docs/scale.md says how far they can be trusted. Nothing is started or measured.
    """
    from edgeflock.devices.capacity import (
        Fleet,
        Machine,
        Prices,
        largest,
        lines,
        need_of,
        return_seconds,
        storm_of,
    )

    fleet = Fleet(devices, period, parameters, entries, tls=not plain)
    machine = Machine(memory * 1e9, disk * 1e9, files, egress * 1e9 / 8, days)
    prices = Prices(core_price, egress_price, disk_price)
    need, ends_at = need_of(fleet, machine), largest(fleet, machine)
    storm = storm_of(devices, outage, return_seconds(fleet.tls), seed)
    if json:
        import json as encoder
        from dataclasses import asdict

        told = asdict(need) | {"ends_first": need.first, "ends_at_devices": ends_at}
        print(encoder.dumps(told | {"storm": asdict(storm), "price_a_month": prices.of(need)}))
        return
    for name, value in lines(fleet, machine, need, storm, ends_at, prices):
        print(f"{name:<13} {value}")
