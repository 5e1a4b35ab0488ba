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
    }  # a paper's function, its usual data, and the options that it has no use for
    if paper not in papers:
        *others, last = papers
        raise ConfigError(f"reproduce {paper!r}: must be {', '.join(others)} or {last}")
    run, usual_data, unused = papers[paper]
    given = {"updates": updates, "data": data, "grid": grid, "finished": finished}
    for name in unused.split():
        if value := given[name]:
            option = f"--{name}" if value is True else f"--{name} {value}"
            raise ConfigError(f"{option} does not apply to {paper}; use --quick or --seeds")
    flags = [f"--{name}" for name, is_set in (("quick", quick), ("grid", grid)) if is_set]
    counts = [f"--{name} {value}" for name, value in (("updates", updates), ("seeds", seeds)) if value]
    command = " ".join([f"edgeflock reproduce {paper}", *flags, *counts])
    run(Reproduction(command, out, data or usual_data, quick, updates, seeds, grid, finished, json))
