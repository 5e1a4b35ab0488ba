"""`edgeflock reproduce adacomp`: the paper's tables and figures, and the compression record."""

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import ASGD, RECORD
from edgeflock.papers.adacomp.report import report, summarise
from edgeflock.papers.reproduce import Measured, Method, Reproduction, Results, by_part, measure, narrate
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError


def reproduce_adacomp(options: Reproduction) -> None:
    """Run every experiment, and leave adacomp.json, .md and figures in `options.out`. Raises ConfigError."""
    scale = options.scale(experiments.FULL, experiments.QUICK)
    if options.updates:
        scale = replace(scale, updates=options.updates, classes_updates=options.updates)
    if scale.updates <= experiments.DEVICES:
        raise ConfigError(f"--updates {scale.updates} must be more than the {experiments.DEVICES} devices")
    data = options.data
    samples = len(datasets.load(data, "train"))
    methods: tuple[Method, ...] = experiments.FIGURE_3
    tried: list[Measured] = []
    if options.grid:
        narrate("Learning rates")
        tried = measure(options, experiments.grid(data, scale), scale.seeds[:1])
        methods = best_rates(tried)
    ours = next(method for method in methods if method.name == experiments.ADACOMP.name)
    narrate("The record, Figure 3, Table II, Figure 4")
    parts = [
        *experiments.record(data, scale),
        *experiments.figure_3(data, scale, methods),
        *experiments.table_2(data, samples, scale, ours),
        *experiments.figure_4(data, samples, scale, ours),
    ]
    headline = (RECORD.name, ASGD.name)
    results = by_part(
        [*measure(options, parts, scale.seeds, lambda one: one.method.name in headline), *tried]
    )
    if not finished_enough(results):
        raise ConfigError(
            f"--finished: in {options.out} no run has ended yet of {RECORD.name}, or of {ASGD.name}"
        )
    summary = summarise(results, options)
    options.publish("adacomp", summary, report(results, summary, options.out))


def finished_enough(results: Results) -> bool:
    """Return whether there is a run of the record and one of dense ASGD."""
    return {RECORD.name, ASGD.name} <= {m.experiment.name for part in results.values() for m in part}


def best_rates(measured: Iterable[Measured]) -> tuple[Method, ...]:
    """The methods of Figure 3, each at the rate of the grid that reached 97% first, or else came furthest."""

    def merit(one: Measured) -> tuple[float, float]:
        newest = one.setting.unaveraged
        updates = newest.costs_to_reach(0.97, "updates")
        return -fmean(updates) if updates else -math.inf, fmean(newest.best())

    ranked = sorted(measured, key=merit, reverse=True)
    best = {one.experiment.method.name.rpartition(" rate ")[0]: one for one in reversed(ranked)}
    return tuple(
        replace(method, rate=best[method.name].experiment.method.rate) if method.name in best else method
        for method in experiments.FIGURE_3
    )
