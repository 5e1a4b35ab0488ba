"""What `edgeflock reproduce` does: which paper, on which data."""

import os
from pathlib import Path

from edgeflock.devices.papers.adacomp.results import reproduce_adacomp
from edgeflock.devices.papers.scadles.results import reproduce_scadles
from edgeflock.shared.errors import ConfigError


def reproduce_paper(
    paper: str,
    data: str,
    out: Path,
    *,
    quick: bool,
    updates: int,
    seeds: int,
    grid: bool,
    finished: bool,
    as_json: bool,
) -> None:
    """Leave the paper's results in `out`. Raises ConfigError."""
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    flags = [f"--{name}" for name, on in (("quick", quick), ("grid", grid)) if on]
    given = [f"--{name} {value}" for name, value in (("updates", updates), ("seeds", seeds)) if value]
    command = " ".join([f"edgeflock reproduce {paper}", *flags, *given])
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
            as_json=as_json,
        )
    elif paper == "scadles":
        if updates:
            raise ConfigError(f"--updates {updates}: adacomp takes it; scadles has --quick")
        reproduce_scadles(
            data or folder,
            out,
            quick=quick,
            seeds=seeds,
            grid=grid,
            finished=finished,
            command=command,
            as_json=as_json,
        )
    else:
        raise ConfigError(f"reproduce {paper!r}: known are adacomp and scadles")
