"""Fleets on this machine, emulated or as processes, papers' experiments, and what a fleet needs."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, Level, Set, add_to_path, log_to_stderr, print_json, read_text, require
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command


def fleet(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The fleet; see docs/fleet.md.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; default: edgeflock-fleet/FILE.")
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Emulate a fleet of devices on this machine, in virtual time."""
    run_fleet_file(file, set_ or [], out, as_json=json)


def run_fleet_file(path: Path, overrides: list[str], out: Path | None, *, as_json: bool) -> None:
    """Run `path` and leave JSON lines, figures and a report in `out`. Raises ConfigError."""
    import json

    with require("server", "fleets need"):
        from edgeflock.api.fleet import Fleet
        from edgeflock.devices.emulation.config import parse
        from edgeflock.results.report import draw_accuracy, outcome_summary, report

    add_to_path(path.resolve().parent)
    log_to_stderr(Level.warning)
    file = parse(read_text(path), str(path), overrides)
    directory = out or Path("edgeflock-fleet") / path.stem
    outcomes = Fleet.configured(file).sweep(directory)
    figures = "accuracy.png, accuracy.svg, "
    try:
        draw_accuracy(path.stem, file, outcomes, directory)
    except ImportError:
        figures = ""
        print(f"No figures, for which matplotlib is needed: {install_command('demo')}", file=sys.stderr)
    markdown = report(path.stem, file, outcomes, figures=bool(figures))
    (directory / "report.md").write_text(markdown)
    if as_json:
        print(
            json.dumps(
                {"directory": str(directory), "runs": [outcome_summary(outcome) for outcome in outcomes]}
            )
        )
    else:
        print(markdown)
        print(f"In {directory}: report.md, {figures}seed-*.jsonl", file=sys.stderr)


def quickstart(
    data: Annotated[str, typer.Option(help="digits: or npz:PATH with x_train ... y_test.")] = "digits:",
    model: Annotated[str, typer.Option(help="package.module:Name; default: one that fits the data.")] = "",
    clients: Annotated[int, typer.Option(min=1, help="Client processes.")] = 4,
    backend: Annotated[
        str, typer.Option(help="What they train with: auto, onnx, torch or mixed (every other one onnx).")
    ] = "auto",
    updates: Annotated[int, typer.Option(min=0, help="Updates of the run; 0: as the data need.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("edgeflock-quickstart"),
    set_: Set = None,
    json: Json = False,
) -> None:
    """Train on this machine: a server and client processes on loopback, real sockets, real data."""
    from edgeflock.quickstart import QuickstartPlan, run_quickstart

    plan = QuickstartPlan(data, model, clients, backend, updates, seed, out, tuple(set_ or ()))
    run_quickstart(plan, as_json=json)


def reproduce(
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", help="adacomp, easgd, easgd-rl, scadles, scheduling or all.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Ten minutes instead of hours.")] = False,
    data: Annotated[
        str,
        typer.Option(
            help="adacomp: npz:PATH of MNIST, default $EDGEFLOCK_DATA/mnist.npz. scadles: the folder of "
            "mnist.npz and cifar10_jpgblob.npz, default $EDGEFLOCK_DATA. easgd: of these and pos_ud_ewt.npz."
        ),
    ] = "",
    updates: Annotated[
        int, typer.Option(min=0, help="Updates of each run (adacomp); default: the paper's, or --quick's.")
    ] = 0,
    seeds: Annotated[int, typer.Option(min=0, help="Seeds of each setting; default: all, or one.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results; what is in it is not run again.")] = Path(
        "edgeflock-reproduce"
    ),
    grid: Annotated[bool, typer.Option("--grid", help="Search the learning rates anew.")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Run nothing; report what has ended.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="all: measure a part again, compare with docs/results/check.json.")
    ] = False,
    json: Json = False,
) -> None:
    """Reproduce a paper's tables and figures: on emulated fleets; scheduling by its delays alone."""
    with require("server,demo", "fleets need"):
        from edgeflock.papers.adacomp import reproduce_adacomp
        from edgeflock.papers.check import check_figures
        from edgeflock.papers.easgd import reproduce_easgd, reproduce_easgd_rl
        from edgeflock.papers.reproduce import Reproduction
        from edgeflock.papers.scadles import reproduce_scadles
        from edgeflock.papers.scheduling import reproduce_scheduling
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    papers = {
        "adacomp": (reproduce_adacomp, f"npz:{folder}/mnist.npz", ""),
        "easgd": (reproduce_easgd, folder, "updates grid"),
        "easgd-rl": (reproduce_easgd_rl, "", "updates grid data"),
        "scadles": (reproduce_scadles, folder, "updates"),
        "scheduling": (reproduce_scheduling, "", "updates data grid finished"),
        "all": (check_figures, f"npz:{folder}/mnist.npz", "updates grid finished seeds"),
    }  # a paper's function, its usual data, and the options that it has no use for
    if paper not in papers:
        *others, last = papers
        raise ConfigError(f"reproduce {paper!r}: must be {', '.join(others)} or {last}")
    if check and paper != "all":
        raise ConfigError(f"--check does not apply to {paper}; use edgeflock reproduce all --check")
    if paper == "all" and not check:
        for one in list(papers)[:-1]:
            reproduce(one, quick=quick, seeds=seeds, out=out, json=json)
        return
    run, usual_data, unused = papers[paper]
    given = {"updates": updates, "data": data, "grid": grid, "finished": finished, "seeds": seeds}
    for name in unused.split():
        if value := given[name]:
            option = f"--{name}" if value is True else f"--{name} {value}"
            use = "--quick" if name == "seeds" else "--quick or --seeds"
            raise ConfigError(f"{option} does not apply to {paper}; use {use}")
    flags = [f"--{name}" for name, is_set in (("check", check), ("quick", quick), ("grid", grid)) if is_set]
    counts = [f"--{name} {value}" for name, value in (("updates", updates), ("seeds", seeds)) if value]
    command = " ".join([f"edgeflock reproduce {paper}", *flags, *counts])
    run(Reproduction(command, out, data or usual_data, quick, updates, seeds, grid, finished, json))


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
    shards: Annotated[
        int | None, typer.Option(min=0, help="Model shards; 0: none; default: as many as the model needs.")
    ] = None,
    journal: Annotated[
        JournalChoice, typer.Option(help="Where the journal is; synchronous: PostgreSQL with a standby.")
    ] = JournalChoice.sqlite,
    memory: Annotated[float, typer.Option(min=0.1, help="GB of memory for each process.")] = 24,
    disk: Annotated[float, typer.Option(min=0.1, help="GB of disk for each process.")] = 100,
    files: Annotated[int, typer.Option(min=1, help="Open files of each process (ulimit -n).")] = 65_536,
    egress: Annotated[float, typer.Option(min=0.001, help="Gbit/s that each process may send.")] = 1,
    days: Annotated[float, typer.Option(min=0, help="Days for which the disk must hold the journal.")] = 30,
    json: Json = False,
) -> None:
    """Estimate how many of each part a fleet needs, and what limits it.

    The costs were measured; docs/scale.md says how far to trust them. Nothing is started or measured here.
    """
    from edgeflock.devices.capacity import (
        FleetLoad,
        Machine,
        ServerParts,
        as_json,
        largest_fleet,
        lines,
        make_plan,
    )

    if cohort > devices:
        raise ConfigError(
            f"--cohort {cohort} is more than --devices {devices}, of which it is a part: lower the cohort or "
            "raise the devices"
        )
    fleet = FleetLoad(devices, period, parameters, entries, not plain, answered, cohort, not arrays)
    machine = Machine(memory * 1e9, disk * 1e9, files, egress * 1e9 / 8, days)
    requested = ServerParts(gateways or 0, shards or 0, journal.value)
    chosen = {"gateways": gateways is None, "shards": shards is None}
    plan = make_plan(fleet, machine, requested, **chosen)
    limit = largest_fleet(fleet, machine, requested, **chosen)
    single_limit = largest_fleet(fleet, machine, ServerParts())
    if json:
        print_json(as_json(plan, limit, single_limit))
        return
    for name, value in lines(plan, limit, single_limit):
        print(f"{name:<11} {value}")
