"""The report: the paper's numbers next to ours, and figures 2 and 3."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from edgeflock.papers.easgd.settings import (
    ALPHA,
    CHUNK,
    EASGD,
    LINKS,
    METHODS,
    PERIOD,
    SIGCOMP,
    STAGGERED,
    SYNC,
    TASKS,
    EasgdScale,
)
from edgeflock.papers.reproduce import Measured, Reproduction, Results
from edgeflock.results.figures import Bars, Panel, draw, draw_bars
from edgeflock.results.outcomes import Outcome
from edgeflock.shared.numbers import integer, number, percent, size


def samples_per_second(outcome: Outcome) -> float:
    """Return the samples per virtual second of all nodes together, until the run's last evaluation."""
    return float(outcome.samples / outcome.rows[-1]["seconds"])


def summarise(results: Results, options: Reproduction) -> dict[str, Any]:
    """Throughput in samples per virtual second, accuracy of the last evaluation, bytes both ways."""
    tasks: dict[str, Any] = {}
    for task in TASKS:
        rates = {
            link: {
                one.setting.label: fmean(samples_per_second(run) for run in one.setting.outcomes)
                for one in results.get(f"throughput, {task.name}, {link}", [])
            }
            for link in LINKS
        }
        tasks[task.name] = {
            "throughput": rates,
            "gain": {link: _relative_gain(rate, STAGGERED.name, EASGD.name) for link, rate in rates.items()},
            "speed_up": {
                link: {method.name: _relative_gain(rate, method.name, SYNC.name) for method in METHODS}
                for link, rate in rates.items()
            },
            "accuracy": {
                one.setting.label: {
                    "last": fmean(one.setting.last()),
                    "last_five": fmean(one.setting.last_five()),
                    "best": fmean(one.setting.best()),
                    "seeds": [run.end["seed"] for run in one.setting.outcomes],
                    "seconds": fmean(run.rows[-1]["seconds"] for run in one.setting.outcomes),
                    "ingress": fmean(run.rows[-1]["ingress"] for run in one.setting.outcomes),
                    "egress": fmean(run.rows[-1]["egress"] for run in one.setting.outcomes),
                }
                for one in results.get(f"accuracy, {task.name}", [])
            },
            "staggered_over_easgd": _gains_by_seed(results.get(f"accuracy, {task.name}", [])),
        }
    return {**options.about, "tasks": tasks}


def _gains_by_seed(measured: Sequence[Measured]) -> dict[str, list[float]]:
    """Return the accuracy gain of staggered EASGD over EASGD in points, for each seed that both have."""
    runs = {one.setting.label: {run.end["seed"]: run for run in one.setting.outcomes} for one in measured}
    easgd, staggered = runs.get(EASGD.name, {}), runs.get(STAGGERED.name, {})
    both = [(staggered[seed], easgd[seed]) for seed in staggered if seed in easgd]
    return {
        "last": [100 * (one.last - other.last) for one, other in both],
        "last_five": [100 * (one.last_five - other.last_five) for one, other in both],
    }


def _relative_gain(rates: dict[str, float], one: str, other: str) -> float | None:
    """Return the relative gain of `one` over `other`. None if either is unknown."""
    return rates[one] / rates[other] - 1 if one in rates and other in rates else None


def report(results: Results, summary: dict[str, Any], scale: EasgdScale, out: Path) -> str:
    """easgd.md. Writes the figures into `out`."""
    caption = f"{summary['command']}, {summary['date']}; virtual time; {summary['machine']}"
    panels = [
        Panel(task.name, "seconds", "virtual time", [one.setting for one in measured])
        for task in TASKS
        if (measured := results.get(f"accuracy, {task.name}"))
    ]
    if panels:
        draw(panels, out / "easgd-figure3", caption)
    bars = [
        Bars(
            task.name,
            "samples per second",
            list(LINKS),
            {method.name: [rates[link].get(method.name, 0.0) for link in LINKS] for method in METHODS},
        )
        for task in TASKS
        for rates in [summary["tasks"][task.name]["throughput"]]
    ]
    draw_bars(bars, out / "easgd-figure2", caption, log=True)
    steps = ", ".join(f"{count:,} ({name})" for name, count in scale.steps.items())
    return "\n".join(
        [
            "# Communication efficient distributed SGD, reproduced",
            "",
            f"`{summary['command']}` on {summary['date']}: {summary['machine']}. Three emulated nodes in "
            f"virtual time, batches of 16, period {PERIOD}, alpha {ALPHA:g}, chunks of {CHUNK:,}, "
            "significance 0.01, all values float32. Steps of each node for accuracy, on "
            f"{f'{scale.test:,}' if scale.test else 'all'} held-out samples: {steps}; the paper's are "
            "100,000 and 70,000. CIFAR-10 stands in for SVHN"
            + (", and for the MLP MNIST's digits in a frame" if scale.digits else "")
            + ", the UD English Web Treebank for the Wall "
            "Street Journal; how wide the MLP's seven layers and the LSTM are is ours, their parameters are "
            "the paper's 3,465,514 and about 5.67 million. A step takes "
            + ", ".join(f"{task.step_ms:g} ms ({task.name})" for task in TASKS)
            + ", and a link is the node's own, as fast down as up. The time to select and code is not "
            "counted: where the paper's SigComp loses by it, ours does not.",
            "",
            *_throughput(summary),
            *_accuracy(summary),
        ]
    )


def _throughput(summary: dict[str, Any]) -> list[str]:
    lines = [
        "## Throughput (figure 2)",
        "",
        "Samples per virtual second, and what staggering gains over EASGD.",
        "",
        "| model | link | " + " | ".join(method.name for method in METHODS) + " | gain | paper's gain |",
        "|---|---|" + "---|" * (len(METHODS) + 2),
    ]
    for task in TASKS:
        measured = summary["tasks"][task.name]
        for link in LINKS:
            rates = measured["throughput"][link]
            cells = [integer(rates.get(method.name)) for method in METHODS]
            paper = f"{task.gain:+.1%}" if link == "1 Gbps" else ""
            gain = number(measured["gain"][link], "+.1%")
            lines.append(f"| {task.name} | {link} | {' | '.join(cells)} | {gain} | {paper} |")
    return [
        *lines,
        "",
        "Over sync SGD on 1 Gbps the paper has an increase of 0.1 to 8.8 times by staggered EASGD and of "
        "0.9 to 1.8 times by SigComp; we have "
        + "; ".join(
            f"{number(by[STAGGERED.name], '.1f')} and {number(by[SIGCOMP.name], '.1f')} ({task.name})"
            for task in TASKS
            for by in [summary["tasks"][task.name]["speed_up"]["1 Gbps"]]
        )
        + ".",
        "",
        "![Throughput](easgd-figure2.png)",
        "",
    ]


def _accuracy(summary: dict[str, Any]) -> list[str]:
    lines = [
        "## Accuracy (figure 3)",
        "",
        "On 1 Gbps, after as many samples of each node. EASGD's model is the centre; means over the seeds.",
        "",
        "| model | method | seeds | accuracy | last five | to sync SGD | paper | virtual time | received "
        "| sent |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for task in TASKS:
        runs = summary["tasks"][task.name]["accuracy"]
        paper = {EASGD.name: -task.lost, STAGGERED.name: -task.lost, SIGCOMP.name: -task.significant}
        for method in METHODS:
            if method.name not in runs:
                continue
            run = runs[method.name]
            to_sync = f"{100 * (run['last'] - runs[SYNC.name]['last']):+.2f}" if SYNC.name in runs else "-"
            said = f"about {paper[method.name]:+.0f}" if method.name in paper else ""
            lines.append(
                f"| {task.name} | {method.name} | {len(run['seeds'])} | {percent(run['last'])} | "
                f"{percent(run['last_five'])} | {to_sync} | {said} | {run['seconds']:,.1f} s | "
                f"{size(run['ingress'])} | {size(run['egress'])} |"
            )
    lines += [
        "",
        "Staggered EASGD against EASGD, in points, by seed; the paper: near identical.",
        "",
        "| model | last evaluation | mean | mean of the last five | mean |",
        "|---|---|--:|---|--:|",
        *_differences(summary),
        "",
    ]
    drawn = any(summary["tasks"][task.name]["accuracy"] for task in TASKS)
    return [*lines, "![Accuracy](easgd-figure3.png)", ""] if drawn else lines


def _differences(summary: dict[str, Any]) -> Iterator[str]:
    for task in TASKS:
        points = summary["tasks"][task.name]["staggered_over_easgd"]
        if points["last"]:
            cells = [
                f"{', '.join(f'{one:+.2f}' for one in points[which])} | {fmean(points[which]):+.2f}"
                for which in ("last", "last_five")
            ]
            yield f"| {task.name} | {' | '.join(cells)} |"
