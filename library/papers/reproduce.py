"""The common parts of papers: methods, experiments as fleets, measurements, and where results are kept."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.machine import commit, machine
from edgeflock.results.outcomes import Setting
from edgeflock.results.sweep import Job, outcome, sweep
from edgeflock.server.hosting.choices import CHOICES

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
class Scale:
    """The extent of a paper's experiments. Each paper has more to say of it."""

    seeds: tuple[int, ...] = field(kw_only=True)


AnyScale = TypeVar("AnyScale", bound=Scale)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The options of `edgeflock reproduce`."""

    command: str
    out: Path
    """The folder of results: NAME.json, NAME.md, figures, and runs, which are not run again."""
    data: str = ""
    quick: bool = False
    updates: int = 0
    """Updates of each run. 0: as the scale has it."""
    seeds: int = 0
    """Seeds of each setting. 0: as the scale has it."""
    grid: bool = False
    """Whether each method's learning rate is chosen anew."""
    finished: bool = False
    """Whether nothing is run, but what has been is reported."""
    as_json: bool = False

    def scale(self, full: AnyScale, quick: AnyScale) -> AnyScale:
        """Return the extent of the experiments."""
        chosen = quick if self.quick else full
        return replace(chosen, seeds=tuple(range(self.seeds))) if self.seeds else chosen

    @property
    def about(self) -> dict[str, str]:
        """The beginning of NAME.json."""
        date = datetime.now(UTC).date().isoformat()
        return {"command": self.command, "commit": commit(), "date": date, "machine": machine()}

    def publish(self, name: str, summary: dict[str, Any], markdown: str) -> None:
        """Write NAME.json and NAME.md next to the figures, and print one of them."""
        (self.out / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
        (self.out / f"{name}.md").write_text(markdown)
        if self.as_json:
            print(json.dumps(summary))
        else:
            print(markdown)
            narrate(f"In {self.out}: {name}.md, {name}.json, and figures as PNG and SVG")


def narrate(text: str) -> None:
    """Say on stderr what is done."""
    Console(stderr=True).print(text)


@dataclass(frozen=True, slots=True)
class Method:
    """A rule and its compression. Settings are [section.key] of a fleet file."""

    name: str
    settings: dict[str, object]
    rate: float
    """The best learning rate of a grid that we found (docs/benchmarks.md)."""


def fleet_file(sections: Mapping[str, Mapping[str, Any]], settings: Mapping[str, object]) -> FleetFile:
    """Return a fleet file of `sections`, with `settings`, [section.key], instead of theirs.

    Settings of `devices` are those of each of their classes. Updates are not kept, to save disk.
    """
    tables: dict[str, dict[str, Any]] = {name: dict(section) for name, section in sections.items()}
    for name, key in (("journal", "keep_updates"), ("evaluation", "recover")):
        tables[name] = {**tables.get(name, {}), key: False}
    for path, value in settings.items():
        section, _, key = path.partition(".")
        if section == "devices":
            tables[section] = {name: {**kind, key: value} for name, kind in tables[section].items()}
        else:
            tables.setdefault(section, {})[key] = value
    return FleetFile.model_validate(tables, context=CHOICES)


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
    options: Reproduction,
    experiments: Iterable[Experiment],
    seeds: tuple[int, ...],
    first: Callable[[Experiment], bool] = lambda one: False,
) -> list[Measured]:
    """Run what has not been run yet; or, with `finished`, leave it at what has.

    Every seed of whatever is `first`; then seed by seed, so that there is soon something of everything.
    """
    listed = list(experiments)
    order = [(one, seed) for seed in seeds for one in listed if first(one)] + [
        (one, seed) for seed in seeds for one in listed
    ]
    if not options.finished:
        jobs = {job.path: job for one, seed in order for job in one.jobs(options.out, (seed,))}
        sweep(list(jobs.values()))
    results = []
    for one in listed:
        outcomes = [done for job in one.jobs(options.out, seeds) if (done := outcome(job))]
        if outcomes:
            results.append(Measured(one, Setting(one.name, outcomes)))
    return results


def by_part(measured: Iterable[Measured]) -> Results:
    """Return `measured` under the parts that it belongs to, in order."""
    results: Results = {}
    for one in measured:
        results.setdefault(one.experiment.part, []).append(one)
    return results
