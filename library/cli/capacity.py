"""`edgeflock capacity`: what a fleet needs of each part of a run, and where the run ends."""

from enum import StrEnum
from typing import Annotated

import typer

from edgeflock.cli.options import Json
from edgeflock.shared.errors import ConfigError


class JournalChoice(StrEnum):
    sqlite = "sqlite"
    postgresql = "postgresql"
    synchronous = "synchronous"


def capacity(
    devices: Annotated[int, typer.Option(min=1, help="Devices that are connected.")],
    period: Annotated[
        float, typer.Option(min=0.001, help="Seconds from one update of a device to its next.")
    ],
    parameters: Annotated[int, typer.Option(min=1, help="Of the model.")] = 211_690,
    entries: Annotated[int, typer.Option(min=0, help="Of an update; 0: the root of the parameters.")] = 0,
    answered: Annotated[
        int, typer.Option(min=0, help="Entries of an answer; 0: as many as of an update.")
    ] = 0,
    cohort: Annotated[
        int, typer.Option(min=0, help="Devices of a round, a period long; 0: all push at any time.")
    ] = 0,
    arrays: Annotated[
        bool, typer.Option("--arrays", help="The model is a file of arrays: the server loads no torch.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Without TLS.")] = False,
    gateways: Annotated[
        int | None, typer.Option(min=0, help="That devices come through; 0: none. As many as it takes.")
    ] = None,
    spare: Annotated[
        int, typer.Option(min=0, help="Gateways without which the others must suffice, and do in the outage.")
    ] = 0,
    shards: Annotated[
        int | None, typer.Option(min=0, help="That the model is in; 0: none. As many as it takes.")
    ] = None,
    journal: Annotated[
        JournalChoice, typer.Option(help="Where updates are kept; synchronous: PostgreSQL with a standby.")
    ] = JournalChoice.sqlite,
    standbys: Annotated[int, typer.Option(min=0, help="Servers that stand by.")] = 0,
    memory: Annotated[float, typer.Option(min=0.1, help="GB that each process may take.")] = 24,
    disk: Annotated[float, typer.Option(min=0.1, help="GB.")] = 100,
    files: Annotated[int, typer.Option(min=1, help="Open files of a process.")] = 65_536,
    egress: Annotated[float, typer.Option(min=0.001, help="Gbit/s of each to the network.")] = 1,
    days: Annotated[float, typer.Option(min=0, help="For which the disk must take the journal.")] = 30,
    outage: Annotated[float, typer.Option(min=0, help="Seconds for which devices have no server.")] = 60,
    region: Annotated[
        float, typer.Option(min=0.001, max=1, help="Part of the devices that the outage takes.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of their return.")] = 0,
    core_price: Annotated[float, typer.Option(min=0, help="Of a core a month.")] = 0,
    egress_price: Annotated[float, typer.Option(min=0, help="Of a GB to the network.")] = 0,
    disk_price: Annotated[float, typer.Option(min=0, help="Of a GB of disk a month.")] = 0,
    json: Json = False,
) -> None:
    """Reckon how many of each part a fleet needs, what ends first, and how it returns after an outage.

    From measured costs; docs/scale.md says how far they can be trusted. Nothing is started or measured.
    """
    from edgeflock.devices.capacity import (
        FleetLoad,
        Machine,
        Prices,
        ServerParts,
        as_json,
        largest,
        lines,
        plan_of,
        return_seconds,
        storm_of,
    )

    if gateways is not None and gateways <= spare and (gateways or spare):
        raise ConfigError(f"--spare {spare}: of {gateways} gateways one at least must be left")
    if standbys and journal is JournalChoice.sqlite:
        raise ConfigError(
            f"--standbys {standbys}: servers stand by for each other with their journal in PostgreSQL; say "
            "--journal postgresql"
        )
    fleet = FleetLoad(devices, period, parameters, entries, not plain, answered, cohort, not arrays)
    machine = Machine(memory * 1e9, disk * 1e9, files, egress * 1e9 / 8, days)
    asked = ServerParts(gateways or 0, spare, shards or 0, standbys, journal.value)
    open_ = {"gateways": gateways is None, "shards": shards is None}
    plan = plan_of(fleet, machine, asked, **open_)
    ends_at, alone_at = largest(fleet, machine, asked, **open_), largest(fleet, machine, ServerParts())
    back, each = return_seconds(fleet, plan.parts)
    served = plan.parts.carrying if plan.parts.gateways else 0
    storm = storm_of(max(1, round(region * devices)), outage, back, gateways=served, each=each, seed=seed)
    prices = Prices(core_price, egress_price, disk_price)
    if json:
        import json as encoder

        print(encoder.dumps(as_json(plan, storm, ends_at, alone_at, prices)))
        return
    for name, value in lines(plan, storm, ends_at, alone_at, prices):
        print(f"{name:<11} {value}")
