"""`edgeflock capacity`: what a fleet needs of each part of a run, and which part limits it."""

from enum import StrEnum
from typing import Annotated

import typer

from edgeflock.cli.options import Json, print_json
from edgeflock.shared.errors import ConfigError


class JournalChoice(StrEnum):
    sqlite = "sqlite"
    postgresql = "postgresql"
    synchronous = "synchronous"


def capacity(
    devices: Annotated[int, typer.Option(min=1, help="Connected devices.")],
    period: Annotated[float, typer.Option(min=0.001, help="Seconds between two updates of a device.")],
    parameters: Annotated[int, typer.Option(min=1, help="Parameters of the model.")] = 211_690,
    entries: Annotated[
        int, typer.Option(min=0, help="Entries of an update; 0: the square root of the parameters.")
    ] = 0,
    answered: Annotated[
        int, typer.Option(min=0, help="Entries of an answer; 0: as many as an update has.")
    ] = 0,
    cohort: Annotated[
        int, typer.Option(min=0, help="Devices of a round, which takes a period; 0: all push at any time.")
    ] = 0,
    arrays: Annotated[
        bool, typer.Option("--arrays", help="The model is a file of arrays, so the server loads no torch.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Connect without TLS.")] = False,
    gateways: Annotated[
        int | None, typer.Option(min=0, help="Gateways; 0: none; default: as many as the fleet needs.")
    ] = None,
    spare: Annotated[int, typer.Option(min=0, help="Gateways that may fail while the others suffice.")] = 0,
    shards: Annotated[
        int | None, typer.Option(min=0, help="Model shards; 0: none; default: as many as the model needs.")
    ] = None,
    journal: Annotated[
        JournalChoice, typer.Option(help="Where the journal is; synchronous: PostgreSQL with a standby.")
    ] = JournalChoice.sqlite,
    standbys: Annotated[int, typer.Option(min=0, help="Servers that wait to take over.")] = 0,
    memory: Annotated[float, typer.Option(min=0.1, help="GB of memory for each process.")] = 24,
    disk: Annotated[float, typer.Option(min=0.1, help="GB of disk for each process.")] = 100,
    files: Annotated[int, typer.Option(min=1, help="Open files of each process (ulimit -n).")] = 65_536,
    egress: Annotated[float, typer.Option(min=0.001, help="Gbit/s that each process may send.")] = 1,
    days: Annotated[float, typer.Option(min=0, help="Days for which the disk must hold the journal.")] = 30,
    outage: Annotated[float, typer.Option(min=0, help="Seconds for which the server is out of reach.")] = 60,
    region: Annotated[
        float, typer.Option(min=0.001, max=1, help="Part of the devices that lose their connections in it.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random waits before devices return.")] = 0,
    core_price: Annotated[float, typer.Option(min=0, help="Price of a core for a month.")] = 0,
    egress_price: Annotated[float, typer.Option(min=0, help="Price of a GB sent to the network.")] = 0,
    disk_price: Annotated[float, typer.Option(min=0, help="Price of a GB of disk for a month.")] = 0,
    json: Json = False,
) -> None:
    """Estimate how many of each part a fleet needs, what limits it, and how it returns after an outage.

    The costs were measured; docs/scale.md says how far to trust them. Nothing is started or measured here.
    """
    from edgeflock.devices.capacity import (
        FleetLoad,
        Machine,
        Prices,
        ServerParts,
        as_json,
        largest_fleet,
        lines,
        make_plan,
        return_seconds,
        simulate_storm,
    )

    if gateways is not None and gateways <= spare and (gateways or spare):
        raise ConfigError(f"--spare {spare} is not below --gateways {gateways}: add gateways or spare fewer")
    if standbys and journal is JournalChoice.sqlite:
        raise ConfigError(
            f"--standbys {standbys}: standbys need a journal in PostgreSQL; set --journal postgresql or "
            "synchronous"
        )
    fleet = FleetLoad(devices, period, parameters, entries, not plain, answered, cohort, not arrays)
    machine = Machine(memory * 1e9, disk * 1e9, files, egress * 1e9 / 8, days)
    requested = ServerParts(gateways or 0, spare, shards or 0, standbys, journal.value)
    chosen = {"gateways": gateways is None, "shards": shards is None}
    plan = make_plan(fleet, machine, requested, **chosen)
    limit = largest_fleet(fleet, machine, requested, **chosen)
    single_limit = largest_fleet(fleet, machine, ServerParts())
    lost, count = max(1, round(region * devices)), plan.parts.serving_gateways if plan.parts.gateways else 0
    seconds, gateway_s = return_seconds(fleet, plan.parts)
    storm = simulate_storm(lost, outage, seconds, gateways=count, gateway_s=gateway_s, seed=seed)
    prices = Prices(core_price, egress_price, disk_price)
    if json:
        print_json(as_json(plan, storm, limit, single_limit, prices))
        return
    for name, value in lines(plan, storm, limit, single_limit, prices):
        print(f"{name:<11} {value}")
