"""What each family's best setting has come to in a fleet, from the records."""

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.learning.arms import CENTRAL, COHORT, GRIDS, PRODUCT, VARIANTS, parsed
from benchmarks.learning.cells import SEEDS, Results

LINES = (PRODUCT, COHORT, *(f"{PRODUCT} {variant}" for variant in VARIANTS), *GRIDS)
"""Families in the order of the tables."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a family's best setting has come to in one fleet, as means over its seeds."""

    arm: str
    family: str
    seeds: int
    last: float
    mean_of_last: float
    worst: float | None
    slow: float | None
    """The accuracy of the groups that slow devices alone hold."""
    seconds: float
    ingress: float
    egress: float
    dense: float
    runs: list[dict[str, Any]]
    """The figures of each seed."""
    settings: tuple["Line", ...] = ()
    """Every setting that was run, this one among them."""

    @property
    def both(self) -> float:
        """Bytes both ways."""
        return self.ingress + self.egress

    @property
    def score(self) -> float:
        """The mean of the last three, by which lines compare; of one that diverged less than any."""
        return self.mean_of_last if math.isfinite(self.mean_of_last) else -math.inf


def best_rival(lines: Iterable[Line]) -> Line | None:
    """The line of a rival with the highest mean of the last three."""
    rivals = [line for line in lines if not line.family.startswith(PRODUCT) and line.family not in CENTRAL]
    return max(rivals, key=lambda line: line.score, default=None)


def lines_of(results: Results, task: str, n: int, data: str) -> Iterator[Line]:
    """Return a line for each family that was run in this fleet.

    It is that of the best setting, also if another one has more seeds.
    """
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for cell, record in results.items():
        if (cell.task, cell.n, cell.data) == (task, n, data) and cell.seed in SEEDS and "figures" in record:
            by_arm.setdefault(cell.arm, []).append(record["figures"])
    families: dict[str, list[Line]] = {}
    for arm, runs in by_arm.items():
        families.setdefault(parsed(arm).family, []).append(_line(arm, data, runs))
    for family in LINES:
        if tried := families.get(family):
            chosen = max(tried, key=lambda line: (line.score, line.seeds))
            yield replace(chosen, settings=tuple(tried))


def _line(arm: str, data: str, runs: list[dict[str, Any]]) -> Line:
    def mean(key: str) -> float:
        return statistics.fmean(run[key] for run in runs)

    worst = mean("worst") if all(run["worst"] is not None for run in runs) else None
    own = [statistics.fmean(list(run["groups"].values())[-2:]) for run in runs if run["groups"]]
    slow = statistics.fmean(own) if own and data == "slow-label" else None
    return Line(
        arm=arm,
        family=parsed(arm).family,
        seeds=len(runs),
        last=mean("accuracy"),
        mean_of_last=mean("mean_of_last"),
        worst=worst,
        slow=slow,
        seconds=mean("seconds"),
        ingress=mean("ingress"),
        egress=mean("egress"),
        dense=mean("dense"),
        runs=runs,
    )
