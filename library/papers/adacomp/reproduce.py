"""`edgeflock reproduce adacomp`: the paper's tables and figures, and the compression record."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from rich.console import Console

from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import ASGD, RECORD
from edgeflock.papers.adacomp.report import report
from edgeflock.papers.adacomp.results import summarise
from edgeflock.papers.reproduce import (
    Experiment,
    Measured,
    Method,
    Results,
    by_part,
    measure,
    publish,
)
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError


def reproduce_adacomp(
    data: str,
    out: Path,
    *,
    quick: bool,
    updates: int,
    seeds: int,
    grid: bool,
    finished: bool,
    command: str,
    as_json: bool,
) -> None:
    """Run every experiment, and leave adacomp.json, .md and figures in `out`. Raises ConfigError.

    With `grid` each method's learning rate is chosen anew. With `finished` nothing is run: what has been is
    reported.
    """
    scale = experiments.QUICK if quick else experiments.FULL
    if updates:
        scale = replace(scale, updates=updates, classes_updates=updates)
    if seeds:
        scale = replace(scale, seeds=tuple(range(seeds)))
    if scale.updates <= experiments.DEVICES:
        raise ConfigError(f"--updates {scale.updates} must be more than the {experiments.DEVICES} devices")
    samples = len(datasets.load(data, "train"))
    narration = Console(stderr=True)
    methods: tuple[Method, ...] = experiments.FIGURE_3
    if grid:
        narration.print("Learning rates")
        methods = best_rates(measure(experiments.grid(data, scale), out, scale.seeds[:1], finished))
    ours = next(method for method in methods if method.name == experiments.ADACOMP.name)
    narration.print("The record, Figure 3, Table II, Figure 4")
    parts = [
        *experiments.record(data, scale),
        *experiments.figure_3(data, scale, methods),
        *experiments.table_2(data, samples, scale, ours),
        *experiments.figure_4(data, samples, scale, ours),
    ]
    results = by_part(measure(parts, out, scale.seeds, finished, _is_headline))
    if not finished_enough(results):
        raise ConfigError(f"--finished: in {out} no run has ended yet of {RECORD.name}, or of {ASGD.name}")
    summary = summarise(results, data, command)
    publish("adacomp", summary, report(results, summary, out), out, as_json=as_json)


def finished_enough(results: Results) -> bool:
    """Return whether there is a run of the record and one of dense ASGD."""
    return {RECORD.name, ASGD.name} <= {m.experiment.name for part in results.values() for m in part}


def best_rates(measured: Iterable[Measured]) -> tuple[Method, ...]:
    """The methods of Figure 3, each at the rate of the grid that reached 97% first, or else came furthest."""

    def merit(one: Measured) -> tuple[float, float]:
        updates = one.setting.costs_to_reach(0.97, "updates")
        return -fmean(updates) if updates else -math.inf, fmean(one.setting.best())

    best: dict[str, Measured] = {}
    for one in measured:
        name = one.experiment.method.name.rpartition(" rate ")[0]
        if name not in best or merit(one) > merit(best[name]):
            best[name] = one
    return tuple(
        replace(method, rate=best[method.name].experiment.method.rate) if method.name in best else method
        for method in experiments.FIGURE_3
    )


def _is_headline(one: Experiment) -> bool:
    return one.method.name in (RECORD.name, ASGD.name)
