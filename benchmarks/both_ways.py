"""Every method in one table: bytes up, down and both ways, gradients, updates, accuracy. MNIST, 200 devices.

    python -m benchmarks.both_ways [--only NAME] [--seeds N] [--updates N] [--processes N] [--finished]

The paper's CNN (211,690 parameters), batches of 10, MNIST dealt out evenly. Edgeflock's methods run as
emulated fleets of real workers, codecs and engine; FedAvg, FedBuff and momentum, which the server does not
have, as benchmarks/learning/rivals has them.
Every row computes as many gradients (--updates). Of a method with several settings the best one counts: the
fewest bytes both ways to 97%, or else the highest accuracy.

Runs are kept in --output, one file a setting and seed: what has ended is not run again, several processes may
run different rows (--only) at a time, and --finished reports what there is. Leaves both-ways.json and
both-ways.md in --report. With --with the figures of an earlier both-ways.json count too: other seeds of a
setting add to its means.
"""

import argparse
import json
import math
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from benchmarks.both_ways_report import Measured, grid_of, joined, markdown, summarise
from benchmarks.learning.rivals.asynchronous import FedBuff, HeavyBall
from benchmarks.learning.rivals.averaging import FedAvg
from benchmarks.learning.rivals.federation import Rival, Simulation
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import ASGD, FIGURE_3, RATES, RECORD
from edgeflock.papers.reproduce import AS_PUBLISHED, Method
from edgeflock.results.outcomes import Setting
from edgeflock.results.sweep import Job, outcome, sweep
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.presets import PRESETS

OURS = "ours, in turns"
"""`preset = "cohort"` without a deadline, and"""
RECORDS = "ours"
"""`preset = "low-bandwidth"` as it comes."""


@dataclass(frozen=True, slots=True)
class Row:
    """A method with one setting, as a fleet or as a simulation on the fleet's shares."""

    method: str
    setting: str
    file: FleetFile
    how: Rival | None = None
    until: float = math.inf
    """Runs end at this accuracy."""

    @property
    def name(self) -> str:
        return f"{self.method}, {self.setting}"

    def job(self, seed: int, out: Path) -> Job:
        """Its run. The folder is named by the settings that are not the defaults."""
        reported = self.file.model_dump_json(exclude={"client"}, exclude_defaults=True) + repr(self.how)
        folder = out / f"{self.name} {sha256(reported.encode()).hexdigest()[:8]}"
        if self.how is None:
            return Job(self.name, self.file, seed, folder, self.until)
        return Simulation(self.name, self.file, seed, folder, self.until, self.how)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of it is run."""

    data: str
    updates: int
    """Of fleets; of simulations gradients."""
    every: int
    """Gradients between two evaluations."""

    def file(self, method: Method) -> FleetFile:
        """The fleet of AdaComp's Figure 3."""
        steps = method.settings.get("local.steps", 1)
        assert isinstance(steps, int), "a number of steps"
        fewer = max(1, steps // 2)  # so that none computes more gradients than the record
        updates, every = self.updates // fewer, self.every // fewer
        scale = experiments.AdacompScale(updates, updates, every, seeds=(0,))
        (experiment,) = experiments.figure_3(self.data, scale, (method,))
        return experiment.file


def rows(scale: Scale) -> Iterator[Row]:
    """All of them, rivals first."""
    for method, rates in fleets():
        for rate in rates:
            yield Row(method.name, f"rate {rate:g}", scale.file(replace(method, rate=rate)))
    for name, how in federated():
        setting = f"rate {how.rate:g}"
        if isinstance(how, FedBuff):
            setting += f", {how.training} training, server's rate {how.server_rate:g}"
        yield Row(name, setting, scale.file(replace(ASGD, rate=how.rate)), how)


def fleets() -> Iterator[tuple[Method, tuple[float, ...]]]:
    """Methods of Edgeflock's own engine with their learning rates; ours comes last."""
    yield replace(_newest(ASGD), name="dense ASGD"), RATES
    averaged = {**ASGD.settings, "fleet.evaluate_unaveraged": False}
    yield replace(ASGD, name="dense ASGD, averaged model", settings=averaged), RATES
    constant = {**_newest(ASGD).settings, "coordination.rule": "none"}
    yield replace(ASGD, name="dense ASGD, constant rate", settings=constant), (0.00025, 0.0005, 0.001)
    for method in FIGURE_3:
        if method is not ASGD:
            yield _newest(method), tuple(rate for rate in RATES if method.rate <= rate <= 2 * method.rate)
    yield RECORD, (RECORD.rate,)
    yield Method(RECORDS, PRESETS["low-bandwidth"], 0.07), (0.07, RECORD.rate)
    cohort = {**PRESETS["cohort"], "local.rate": 0.1, "coordination.deadline": 1e6}
    yield Method(OURS, cohort, 0.5), (0.3, 0.5)


def _newest(method: Method) -> Method:
    """Return a method of the paper whose newest model alone is evaluated."""
    settings = {**method.settings, **AS_PUBLISHED, "fleet.evaluate_unaveraged": False}
    return replace(method, settings=settings)


def federated() -> Iterator[tuple[str, FedAvg | FedBuff | HeavyBall]]:
    """Yield FedAvg with 10 devices a round, FedBuff, and dense ASGD with momentum.

    FedBuff has K = 10 and one epoch, as in its paper. A momentum of 0.9 multiplies a rate by ten.
    """
    for rate in RATES:
        yield "dense ASGD, momentum 0.9", HeavyBall(rate / 10)
    for values, bits in (("f32", ""), ("int8", ", 8 bits")):
        for epochs in (1, 5):
            for rate in (0.05, 0.1, 0.2):
                yield f"FedAvg E={epochs}{bits}", FedAvg(rate, epochs, values=values)
    for training, server_rate in ((20, 1.0), (200, 1.0), (200, 3.0)):
        for rate in (0.05, 0.1, 0.2):
            yield "FedBuff K=10", FedBuff(rate, training=training, server_rate=server_rate)


def chosen(every: list[Row], only: list[str]) -> list[Row]:
    """The rows that `only` names, by method or by method and setting; all without. Raises ConfigError."""
    known = {name for row in every for name in (row.method, row.name)}
    if unknown := [name for name in only if name not in known]:
        listed = "; ".join(row.name for row in every)
        raise ConfigError(f"--only {unknown[0]!r} is no row; there are: {listed}")
    return [row for row in every if not only or row.method in only or row.name in only]


def measured(every: list[Row], seeds: range, out: Path) -> list[Measured]:
    """What has ended, by row."""
    found = []
    for row in every:
        done = [one for seed in seeds if (one := outcome(row.job(seed, out)))]
        if done:
            found.append(Measured(row.method, row.setting, Setting(row.name, done)))
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.both_ways", description=__doc__.split("\n")[0])
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", default=f"npz:{folder}/mnist.npz")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a row; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument("--updates", type=int, default=40_000, help="gradients of each row")
    parser.add_argument("--every", type=int, default=500, help="gradients between evaluations")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--finished", action="store_true", help="run nothing, report what has been run")
    parser.add_argument("--output", type=Path, default=Path("edgeflock-both-ways"), help="keeps the runs")
    parser.add_argument("--report", type=Path, default=Path("docs/results"))
    parser.add_argument("--with", dest="earlier", type=Path, metavar="FILE", help="an earlier both-ways.json")
    asked = parser.parse_args(arguments)
    every = list(rows(Scale(asked.data, asked.updates, asked.every)))
    try:
        some = chosen(every, asked.only)
        seeds = range(asked.first, asked.first + asked.seeds)
        if not asked.finished:
            jobs = [row.job(seed, asked.output) for seed in seeds for row in some]
            sweep([job for job in jobs if outcome(job) is None], asked.processes)
    except ConfigError as error:
        parser.error(str(error))
    found = measured(every, seeds, asked.output)
    if not found:
        parser.error(f"--finished: in {asked.output} no run has ended yet")
    command = shlex.join(["python", "-m", "benchmarks.both_ways", *arguments])
    grid = grid_of(found)
    if asked.earlier:
        grid = joined(grid, json.loads(asked.earlier.read_text())["grid"])
        grid = {row.method: grid[row.method] for row in every if row.method in grid}
    summary = summarise(grid, OURS, asked.data, command)
    asked.report.mkdir(parents=True, exist_ok=True)
    (asked.report / "both-ways.json").write_text(json.dumps(summary, indent=1) + "\n")
    (asked.report / "both-ways.md").write_text(markdown(summary))
    print(markdown(summary))


if __name__ == "__main__":
    main(sys.argv[1:])
