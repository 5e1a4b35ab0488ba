"""`edgeflock reproduce scadles`: the paper's tables and figures, and the same streams without rounds."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from edgeflock.devices.papers.machine import machine
from edgeflock.devices.papers.reproduce import Experiment, Measured, Results, by_part, measure, publish
from edgeflock.devices.papers.scadles import experiments, settings
from edgeflock.devices.papers.scadles.report import report
from edgeflock.devices.papers.scadles.settings import (
    ADAPTIVE,
    BUFFERED,
    DDL,
    DISTRIBUTIONS,
    LOCAL,
    MNIST,
    SCADLES,
    TASKS,
    Rates,
)
from edgeflock.shared import datasets
from edgeflock.shared.errors import ConfigError

SAMPLE_KB = 3
"""Of a CIFAR-10 image, as in the paper."""


def reproduce_scadles(
    folder: str,
    out: Path,
    *,
    quick: bool,
    seeds: int,
    grid: bool,
    finished: bool,
    command: str,
    as_json: bool,
) -> None:
    """Run every experiment, and leave scadles.json, .md and figures in `out`. Raises ConfigError.

    `folder` holds the data sets. With `grid` each method's learning rate is chosen anew. With `finished`
    nothing is run: what has been is reported.
    """
    scale = settings.QUICK if quick else settings.FULL
    if seeds:
        scale = replace(scale, seeds=tuple(range(seeds)))
    for task in TASKS:
        datasets.load(f"npz:{folder}/{task.data}", "test")
    narration = Console(stderr=True)
    rates = settings.BEST
    if grid:
        narration.print("Learning rates")
        rates = best_rates(measure(experiments.grid(folder, scale), out, scale.seeds[:1], finished))
    narration.print("Speed-up, iterations that grow, buffers, compression, one label each, asynchronous")
    parts = [
        *experiments.speed_up(folder, scale, rates),
        *experiments.growing(folder, scale, rates),
        *experiments.buffers(scale),
        *experiments.compression(folder, scale, rates),
        *experiments.non_iid(folder, scale, rates),
        *experiments.injection_traffic(scale),
        *experiments.asynchronous(folder, scale, rates),
    ]
    results = by_part(measure(parts, out, scale.seeds, finished, _is_headline))
    if not any(part.startswith("speed-up") for part in results):
        raise ConfigError(f"--finished: in {out} no run of the speed-up has ended yet")
    summary = summarise(results, command)
    publish("scadles", summary, report(results, summary, out), out, as_json=as_json)


def _is_headline(one: Experiment) -> bool:
    return one.part.startswith("speed-up")


def best_rates(measured: Iterable[Measured]) -> Rates:
    """The rate of the grid that came to the highest of its task's targets, and to all of them soonest."""
    tasks = {f"grid, {task.name}": task for task in TASKS}

    def merit(one: Measured) -> tuple[float, float, float]:
        targets = tasks[one.experiment.part].targets
        seconds = [at for target in targets if (at := one.setting.crossing(target, "seconds")) is not None]
        return len(seconds), -sum(seconds), fmean(one.setting.best())

    best: dict[tuple[str, str, str], Measured] = {}
    for one in measured:
        task, method = tasks[one.experiment.part].name, one.experiment.method.name
        key = task, method, one.experiment.name.partition(" ")[0]
        if key not in best or merit(one) > merit(best[key]):
            best[key] = one
    return {key: one.experiment.method.rate for key, one in best.items()}


def common_target(found: "Found", task: settings.Task) -> float | None:
    """The highest target that conventional training and dense ScaDLES reach on all streams that were run."""
    runs = [
        one.setting
        for one in found.get(f"speed-up, {task.name}", {}).values()
        if one.experiment.method.name in (DDL.name, SCADLES.name)
    ]
    reached = [
        target
        for target in task.targets
        if all(setting.crossing(target, "seconds") is not None for setting in runs)
    ]
    return reached[-1] if runs and reached else None


def summarise(results: Results, command: str) -> dict[str, Any]:
    """What scadles.json holds; what has not been run is left out."""
    found = {part: {one.experiment.name: one for one in measured} for part, measured in results.items()}
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "speed_up": {
            task.name: _speed_up(found, task) for task in TASKS if f"speed-up, {task.name}" in found
        },
        "growing": _growing(found),
        "buffers": _buffers(found.get("buffers", {})),
        "compression": {
            task.name: {name: _compression(one) for name, one in found[f"compression, {task.name}"].items()}
            for task in TASKS
            if f"compression, {task.name}" in found
        },
        "non_iid": {
            task.name: {name: _injected(one) for name, one in found[f"non-IID, {task.name}"].items()}
            for task in TASKS
            if f"non-IID, {task.name}" in found
        },
        "injected": {
            name: _injected(one)["kilobytes_a_round"] for name, one in found.get("injected", {}).items()
        },
        "asynchronous": _asynchronous(found),
    }


Found = dict[str, dict[str, Measured]]
"""part -> name -> what was measured."""


def _speed_up(found: Found, task: settings.Task) -> dict[str, Any]:
    target = common_target(found, task)
    runs = found[f"speed-up, {task.name}"]
    made: dict[str, Any] = {}
    for distribution in DISTRIBUTIONS:
        methods = {
            method.name: runs[f"{distribution} {method.name}"]
            for method in (DDL, SCADLES, ADAPTIVE, LOCAL)
            if f"{distribution} {method.name}" in runs
        }
        if methods:
            made[distribution] = {"target": target, **_compared(methods, target, task)}
    return made


def _compared(methods: dict[str, Measured], target: float | None, task: settings.Task) -> dict[str, Any]:
    """Methods on the same streams: virtual seconds, rounds and bytes to the target; speed-ups to any."""
    seeds = next(iter(methods.values())).setting.outcomes

    def to(key: str) -> dict[str, float | None]:
        return {name: one.setting.crossing(target, key) if target else None for name, one in methods.items()}

    return {
        "seeds": {name: [run.end["seed"] for run in one.setting.outcomes] for name, one in methods.items()},
        "learning_rate": {name: one.experiment.method.rate for name, one in methods.items()},
        "seconds": to("seconds"),
        "rounds": {
            name: None if updates is None else updates / settings.DEVICES
            for name, updates in to("updates").items()
        },
        "ingress": to("ingress"),
        "speed_up": _speed_ups(methods, target) if target else {},
        "speed_up_to": {f"{other:g}": _speed_ups(methods, other) for other in task.targets},
        "accuracy": {name: fmean(one.setting.best()) for name, one in methods.items()},
        "slowest_rate": fmean(min(stream["rate"] for stream in run.end["streams"].values()) for run in seeds),
    }


def _speed_ups(methods: dict[str, Measured], target: float) -> dict[str, float | None]:
    """How many times as fast as conventional training, by the mean times over the seeds."""
    seconds = {name: one.setting.crossing(target, "seconds") for name, one in methods.items()}
    base = seconds.pop(DDL.name, None)
    return {name: base / taken if base and taken else None for name, taken in seconds.items()}


def _growing(found: Found) -> dict[str, Any]:
    """Seconds to the target, and how many times as fast as conventional training, which takes as before."""
    made: dict[str, Any] = {}
    target = common_target(found, MNIST)
    for name, one in found.get("growing", {}).items():
        base = found[f"speed-up, {MNIST.name}"].get(f"{name.partition(' ')[0]} {DDL.name}")
        if target is None or base is None:
            continue
        seconds, conventional = (run.setting.crossing(target, "seconds") for run in (one, base))
        speed_up = conventional / seconds if conventional and seconds else None
        made[name] = {"target": target, "seconds": seconds, "speed_up": speed_up}
    return made


def _buffers(runs: dict[str, Measured]) -> dict[str, Any]:
    """Samples that wait when an iteration begins, after all iterations."""
    made: dict[str, Any] = {}
    for (distribution, model), (persisted, truncated, reduction) in BUFFERED.items():
        name = f"{distribution} {model}"
        if not {f"{name} persistence", f"{name} truncation"} <= set(runs):
            continue
        kept = runs[f"{name} persistence"]
        every = [_depths(outcome.end, "depth") for outcome in kept.setting.outcomes]
        short = [_depths(outcome.end, "deepest") for outcome in runs[f"{name} truncation"].setting.outcomes]
        total = fmean(map(sum, every))
        made[name] = {
            "rounds": kept.experiment.file.run.updates // settings.DEVICES,
            "persisted": {"sum": total, "largest": fmean(map(max, every))},
            "truncated": {"sum": fmean(map(sum, short)), "largest": fmean(map(max, short))},
            "reduction": {
                "sum_over_sum": total / fmean(map(sum, short)),
                "sum_over_largest": total / fmean(map(max, short)),
            },
            "paper": {"persisted": persisted, "truncated": truncated, "reduction": reduction},
        }
    return made


def _depths(end: dict[str, Any], key: str) -> list[int]:
    return [stream[key] for stream in end["streams"].values()]


def _compression(one: Measured) -> dict[str, Any]:
    tallies = [outcome.end["classes"]["all"] for outcome in one.setting.outcomes]
    return {
        "cnc": fmean(tally["compressed"] / tally["updates"] for tally in tallies),
        "floats": fmean(tally["floats"] for tally in tallies),
        "ingress": fmean(tally["ingress"] for tally in tallies),
        "accuracy": fmean(one.setting.best()),
    }


def _injected(one: Measured) -> dict[str, Any]:
    tallies = [outcome.end["classes"]["all"] for outcome in one.setting.outcomes]
    rounds = [tally["updates"] / settings.LABELLED for tally in tallies]
    each = zip(tallies, rounds, strict=True)
    return {
        "accuracy": fmean(one.setting.best()),
        "last_accuracy": fmean(outcome.rows[-1]["accuracy"] or 0.0 for outcome in one.setting.outcomes),
        "kilobytes_a_round": fmean(SAMPLE_KB * tally["shared"] / count for tally, count in each),
        "bytes_a_round": fmean(
            tally["shared_bytes"] / count for tally, count in zip(tallies, rounds, strict=True)
        ),
    }


def _asynchronous(found: Found) -> dict[str, Any]:
    """Best accuracy by the same virtual second and in the same bytes; dense and dense, sparse and sparse.

    Both are those of whichever run has less of them by its end.
    """
    apart = found.get(f"asynchronous, {MNIST.name}", {})
    together = found.get(f"speed-up, {MNIST.name}", {})
    target = common_target(found, MNIST)
    made: dict[str, Any] = {}
    for distribution in DISTRIBUTIONS:
        for suffix, rounds in (("", together), (", stragglers", apart)):
            for sync, free in ((SCADLES, settings.ASYNC), (ADAPTIVE, settings.ASYNC_SPARSE)):
                one = rounds.get(f"{distribution} {sync.name}{suffix}")
                other = apart.get(f"{distribution} {free.name}{suffix}")
                if one is None or other is None:
                    continue
                entry: dict[str, Any] = {"rate": {sync.name: one.experiment.method.rate}}
                entry["rate"][free.name] = other.experiment.method.rate
                for key in ("seconds", "ingress"):
                    where = min(run.setting.outcomes[0].rows[-1][key] for run in (one, other))
                    entry[key] = {
                        "at": where,
                        "rounds": one.setting.best_by(key, where),
                        "async": other.setting.best_by(key, where),
                    }
                entry["seconds_to_target"] = {
                    "target": target,
                    "rounds": one.setting.crossing(target, "seconds") if target else None,
                    "async": other.setting.crossing(target, "seconds") if target else None,
                }
                made[f"{distribution}{suffix}, {'dense' if sync is SCADLES else 'sparse'}"] = entry
    return made
