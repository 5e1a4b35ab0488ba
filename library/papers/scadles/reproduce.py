"""`edgeflock reproduce scadles`: the paper's tables and figures, and the same streams without rounds."""

from collections.abc import Iterable
from statistics import fmean

from edgeflock.papers.reproduce import Measured, Reproduction, by_part, measure, narrate
from edgeflock.papers.scadles import experiments
from edgeflock.papers.scadles.report import report
from edgeflock.papers.scadles.results import summarise
from edgeflock.papers.scadles.settings import BEST, FULL, LONG_PARTS, QUICK, SPEED_UP_TASKS, TASKS, Rates
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError


def reproduce_scadles(options: Reproduction) -> None:
    """Run every experiment, and leave scadles.json, .md and figures in `options.out`. Raises ConfigError."""
    scale, folder = options.scale(FULL, QUICK), options.data
    for task in TASKS:
        datasets.load(task.data.format(folder=folder), "test")
    rates = BEST
    if options.grid:
        narrate("Learning rates")
        rates = best_rates(measure(options, experiments.grid(folder, scale), scale.seeds[:1]))
    narrate(
        "Speed-up, small batches, iterations that grow, changing rates, buffers, compression, one label "
        "each, asynchronous"
    )
    parts = [
        *experiments.speed_up(folder, scale, rates),
        *experiments.noisy(folder, scale),
        *experiments.growing(folder, scale, rates),
        *experiments.changing(folder, scale, rates),
        *experiments.buffers(scale),
        *experiments.compression(folder, scale, rates),
        *experiments.non_iid(folder, scale, rates),
        *experiments.injection_traffic(scale),
        *experiments.asynchronous(folder, scale, rates),
    ]
    if options.quick:
        parts = [one for one in parts if not one.part.startswith(LONG_PARTS)]
    results = by_part(measure(options, parts, scale.seeds, lambda one: one.part.startswith("speed-up")))
    if not any(part.startswith("speed-up") for part in results):
        raise ConfigError(f"--finished: in {options.out} no run of the speed-up has ended yet")
    summary = summarise(results, options)
    options.publish("scadles", summary, report(results, summary, options.out))


def best_rates(measured: Iterable[Measured]) -> Rates:
    """The rate of the grid that came to the highest of its task's targets, and to all of them soonest."""
    tasks = {f"grid, {task.name}": task for task in SPEED_UP_TASKS}

    def merit(one: Measured) -> tuple[float, float, float]:
        targets = tasks[one.experiment.part].targets
        seconds = [at for target in targets if (at := one.setting.interpolate(target, "seconds")) is not None]
        return len(seconds), -sum(seconds), fmean(one.setting.best())

    rates: dict[tuple[str, str, str], float] = {}
    for one in reversed(sorted(measured, key=merit, reverse=True)):
        task, method = tasks[one.experiment.part].name, one.experiment.method
        rates[task, method.name, one.experiment.name.partition(" ")[0]] = method.rate
    return rates
