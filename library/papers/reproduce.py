"""The common parts of papers: methods, experiments as fleets, measurements, and where results are kept."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.results.outcomes import Setting
from edgeflock.results.sweep import Job, outcome, sweep

AS_PUBLISHED: dict[str, object] = {
    "coordination.average": 0.0,
    "compression.balance": 1.0,
    "compression.feedback": 0.0,
    "compression.indices": "golomb",
    "compression.values": "f32",
    "downlink.mode": "exact",
}
"""What papers take for granted, and our defaults do not: each tensor sends the same part of a gradient, in
float32, and forgets the rest; devices get all of the model, and it is the one that is evaluated."""


@dataclass(frozen=True, slots=True)
class Method:
    """A rule and its compression. Settings are [section.key] of a fleet file."""

    name: str
    settings: dict[str, object]
    rate: float
    """The best learning rate of a grid that we found (docs/benchmarks.md)."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One setting of one table or figure."""

    part: str
    name: str
    method: Method
    file: FleetFile

    def jobs(self, out: Path, seeds: tuple[int, ...]) -> list[Job]:
        """Return the experiment's runs. Equal settings, also of other experiments, share their runs."""
        settings = self.file.model_dump_json(exclude={"client"}, exclude_defaults=True)
        folder = out / "runs" / sha256(settings.encode()).hexdigest()[:12]
        return [Job(f"{self.part}: {self.name}", self.file, seed, folder) for seed in seeds]


@dataclass(frozen=True, slots=True)
class Measured:
    """An experiment and its runs."""

    experiment: Experiment
    setting: Setting


Results = dict[str, list[Measured]]
"""Part -> its measurements."""


def measure(
    experiments: Iterable[Experiment],
    out: Path,
    seeds: tuple[int, ...],
    finished: bool,
    first: Callable[[Experiment], bool] = lambda one: False,
) -> list[Measured]:
    """Run what has not been run yet; or, with `finished`, leave it at what has.

    Every seed of whatever is `first`; then seed by seed, so that there is soon something of everything.
    """
    listed = list(experiments)
    order = [(one, seed) for seed in seeds for one in listed if first(one)] + [
        (one, seed) for seed in seeds for one in listed
    ]
    jobs = {job.path: job for one, seed in order for job in one.jobs(out, (seed,))}
    if not finished:
        sweep(list(jobs.values()))
    results = []
    for one in listed:
        outcomes = [done for job in one.jobs(out, seeds) if (done := outcome(job))]
        if outcomes:
            results.append(Measured(one, Setting(one.name, outcomes)))
    return results


def by_part(measured: Iterable[Measured]) -> Results:
    """`measured` under the parts that it belongs to, in order."""
    results: Results = {}
    for one in measured:
        results.setdefault(one.experiment.part, []).append(one)
    return results


def publish(name: str, summary: dict[str, Any], markdown: str, out: Path, *, as_json: bool) -> None:
    """Write `name`.json and .md to `out`, next to the figures, and print one of them."""
    (out / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    (out / f"{name}.md").write_text(markdown)
    if as_json:
        print(json.dumps(summary))
    else:
        print(markdown)
        Console(stderr=True).print(f"In {out}: {name}.md, {name}.json, and figures as PNG and SVG")
