"""`edgeflock reproduce PAPER`: which paper, on which data."""

import os
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, require
from edgeflock.shared.errors import ConfigError


def reproduce(
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", help="adacomp, easgd, easgd-rl, scadles or scheduling.")
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
    json: Json = False,
) -> None:
    """Reproduce a paper's tables and figures: on emulated fleets; scheduling by its delays alone."""
    with require("server,demo", "fleets need"):
        from edgeflock.papers.adacomp import reproduce_adacomp
        from edgeflock.papers.easgd import reproduce_easgd, reproduce_easgd_rl
        from edgeflock.papers.scadles import reproduce_scadles
        from edgeflock.papers.scheduling import reproduce_scheduling

    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    flags = [f"--{name}" for name, is_set in (("quick", quick), ("grid", grid)) if is_set]
    counts = [f"--{name} {value}" for name, value in (("updates", updates), ("seeds", seeds)) if value]
    command = " ".join([f"edgeflock reproduce {paper}", *flags, *counts])
    if paper == "adacomp":
        reproduce_adacomp(
            data or f"npz:{folder}/mnist.npz",
            out,
            quick=quick,
            updates=updates,
            seeds=seeds,
            grid=grid,
            finished=finished,
            command=command,
            as_json=json,
        )
    elif paper == "easgd":
        if updates or grid:
            raise ConfigError("--updates and --grid do not apply to easgd; use --quick")
        reproduce_easgd(
            data or folder, out, quick=quick, seeds=seeds, finished=finished, command=command, as_json=json
        )
    elif paper == "easgd-rl":
        if updates or grid or data:
            raise ConfigError("--updates, --grid and --data do not apply to easgd-rl; use --quick")
        reproduce_easgd_rl(out, quick=quick, seeds=seeds, finished=finished, command=command, as_json=json)
    elif paper == "scadles":
        if updates:
            raise ConfigError(f"--updates {updates} does not apply to scadles; use --quick")
        reproduce_scadles(
            data or folder,
            out,
            quick=quick,
            seeds=seeds,
            grid=grid,
            finished=finished,
            command=command,
            as_json=json,
        )
    elif paper == "scheduling":
        unused = {"--updates": updates, "--data": data, "--grid": grid, "--finished": finished}
        if refused := [flag for flag, value in unused.items() if value]:
            raise ConfigError(f"{refused[0]}: scheduling trains nothing; use --quick or --seeds")
        reproduce_scheduling(out, quick=quick, seeds=seeds, command=command, as_json=json)
    else:
        raise ConfigError(f"reproduce {paper!r}: must be adacomp, easgd, easgd-rl, scadles or scheduling")
