"""Cells, their records, and the order in which they run."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning.arms import CENTRAL, GRIDS, PRODUCT, VARIANTS, averaged, grid, parsed
from benchmarks.learning.shares import SPLITS
from benchmarks.learning.tasks import TASKS

DEVICES = (4, 10, 50, 200)
SEEDS = (0, 1, 2, 3, 4)
BASE = (10, "even")
"""(n, data) at which a rival's settings are chosen, with seed 0."""
FLEETS = (
    BASE, (10, "slow-label"), (50, "even"), (10, "dirichlet"), (10, "label"), (4, "even"), (200, "even"),
    (10, "crashes"),
    *((n, data) for n in (50, 200, 4) for data in SPLITS if data not in ("even", "two-labels", "crashes")),
)  # fmt: skip
"""All (n, data), those that tell the most first."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run. Arms that have all data on one machine have n = 1."""

    task: str
    n: int
    data: str
    arm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task} n={self.n} {self.data} seed {self.seed}: {self.arm}"


Results = Mapping[Cell, Mapping[str, Any]]
"""The record of each cell that was run: `figures`, or `failed` with the reason."""


def read(path: Path) -> dict[Cell, dict[str, Any]]:
    """All records of a file. The last record of a cell counts; a line that was cut short does not."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[Cell(**record["cell"])] = record
    return found


def provenance(results: Results) -> str:
    """On which machines, when, and of which commits, records are."""
    machines, commits, times = (
        sorted({record[key] for record in results.values() if key in record})
        for key in ("machine", "commit", "date")
    )
    days = f" From {times[0][:10]} to {times[-1][:10]}." if times else ""
    return f"- Machines: {'; '.join(machines) or 'none'}.{days} Commits: {', '.join(commits) or 'none'}."


def append(path: Path, cell: Cell, record: Mapping[str, Any]) -> None:
    """Add a line. One that was cut short before it stays a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        broken = file.tell() and not path.read_bytes().endswith(b"\n")
        line = json.dumps({"cell": asdict(cell), **record}, separators=(",", ":"))
        file.write(b"\n" * bool(broken) + line.encode() + b"\n")


def score(record: Mapping[str, Any]) -> float | None:
    """The mean accuracy of the last three evaluations; None of a cell that failed or diverged."""
    found = record["figures"]["mean_of_last"] if "figures" in record else None
    return found if found is not None and math.isfinite(found) else None


def best(
    results: Results, task: str, n: int, data: str, family: str, seeds: Iterable[int] = (0,)
) -> str | None:
    """The arm of a family with the highest mean score in these cells; None if none was run."""
    scores: dict[str, list[float]] = {}
    for cell, record in results.items():
        same = (cell.task, cell.n, cell.data) == (task, n, data) and cell.seed in seeds
        if same and parsed(cell.arm).family == family and (known := score(record)) is not None:
            scores.setdefault(cell.arm, []).append(known)
    return max(scores, key=lambda arm: sum(scores[arm]) / len(scores[arm]), default=None)


def fleet(arm: str, n: int, data: str) -> tuple[int, str]:
    """(n, data) of an arm's cells: one machine for those that have all data."""
    return (1, "even") if parsed(arm).central else (n, data)


def plan(results: Results, extra: Sequence[str] = (), tasks: Sequence[str] = tuple(TASKS)) -> Iterator[Cell]:
    """Return all cells in order: by seed, n = 10 with even data first, small tasks before large ones.

    Each family's grid runs at `BASE` with seed 0, and its best setting with the averaged model; elsewhere the
    best of those that were run there so far. `extra` arms run everywhere.
    """
    seen: set[Cell] = set()
    for seed in SEEDS:
        for n, data in FLEETS:
            for task in tasks:
                if n > TASKS[task].devices:
                    continue
                for arm in [*_arms(results, task, seed, (n, data) == BASE), *extra]:
                    cell = Cell(task, *fleet(arm, n, data), arm, seed)
                    if cell not in seen:
                        seen.add(cell)
                        yield cell


def _arms(results: Results, task: str, seed: int, base: bool) -> Iterator[str]:
    yield PRODUCT
    for family in GRIDS:
        chosen = best(results, task, *((1, "even") if family in CENTRAL else BASE), family)
        if base and not seed:
            yield from grid(family)
            if chosen:
                yield averaged(chosen)
        elif chosen:
            yield chosen
    yield from (f"{PRODUCT} {variant}" for variant in VARIANTS)


def matching(
    tasks: Sequence[str], ns: Sequence[int], data: Sequence[str], arms: Sequence[str], seeds: Sequence[int]
) -> Callable[[Cell], bool]:
    """Whether a cell is asked for; nothing asks for all. An arm is a name or a family.

    n and data of arms that have all data are not asked for.
    """

    def matches(cell: Cell) -> bool:
        arm = parsed(cell.arm)
        return (
            (not tasks or cell.task in tasks)
            and (not ns or cell.n in ns or arm.central)
            and (not data or cell.data in data or arm.central)
            and (not arms or cell.arm in arms or arm.family in arms)
            and (not seeds or cell.seed in seeds)
        )

    return matches
