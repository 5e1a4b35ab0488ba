"""The report of ScaDLES' reproduction: the paper's numbers next to ours, and the figures."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from edgeflock.papers.reproduce import Measured, Results
from edgeflock.papers.scadles.settings import (
    DEVICES,
    DISTRIBUTIONS,
    FAST_STEP_MS,
    LABELLED_TASKS,
    MNIST,
    SLOWER,
    SPEED_UP_TASKS,
    ScadlesTask,
)
from edgeflock.papers.scadles.speed_up import best_last_five, figure_of, image, level_of, noisy, speed_up
from edgeflock.results.figures import Panel, draw
from edgeflock.results.outcomes import Setting
from edgeflock.shared.numbers import CELLS, RunTraffic, integer, percent, ratio, size

TABLE_5 = {
    "CIFAR-10": {
        "CR 0.1, delta 0.1": (0.29, "97.55%", "4.43e11"),
        "CR 0.1, delta 0.2": (0.99, "96.81%", "0.56e11"),
        "CR 0.1, delta 0.3": (1.0, "98.41%", "0.4e11"),
        "CR 0.1, delta 0.4": (1.0, "98.57%", "0.4e11"),
        "CR 0.01, delta 0.1": (0, "97.39%", "6.02e11"),
        "CR 0.01, delta 0.2": (0.17, "97.47%", "4.99e11"),
        "CR 0.01, delta 0.3": (0.43, "96.72%", "2.56e11"),
        "CR 0.01, delta 0.4": (0.99, "94.97%", "6.32e8"),
    },
    "MNIST": {
        "CR 0.1, delta 0.1": (0, "85.45%", "1.3e12"),
        "CR 0.1, delta 0.2": (0.08, "84.74%", "1.19e12"),
        "CR 0.1, delta 0.3": (1.0, "81.91%", "1.3e10"),
        "CR 0.1, delta 0.4": (1.0, "81.78%", "1.3e10"),
        "CR 0.01, delta 0.1": (0, "84.68%", "1.3e12"),
        "CR 0.01, delta 0.2": (0, "83.98%", "1.3e12"),
        "CR 0.01, delta 0.3": (0, "83.94%", "1.3e12"),
        "CR 0.01, delta 0.4": (0.004, "84.39%", "1.29e12"),
    },
}
"""CNC, accuracy, floats sent."""


def report(results: Results, summary: dict[str, Any], out: Path) -> str:
    """scadles.md. Writes the figures into `out`."""
    figures = set(_figures(results, summary, out))
    sections: dict[str, Callable[[dict[str, Any]], list[str]]] = {
        "noisy": noisy,
        "growing": _growing,
        "changing": _changing,
        "buffers": _buffers,
        "compression": _compression,
        "non_iid": partial(_non_iid, summary["injected"], figures),
        "asynchronous": partial(_asynchronous, figures),
    }
    lines = [
        "# ScaDLES, reproduced",
        "",
        f"`{summary['command']}` on {summary['date']}: {summary['machine']}. Emulated devices in virtual "
        "time, 16 with IID data, or 10 with one label each. An iteration takes 1.2 s on CIFAR-10: a CNN with "
        "BatchNorm, in the place of ResNet152. It takes 1.6 s on MNIST (an MLP) and on pairs of its digits, "
        "which are 100 classes (a CNN), in the place of VGG19 on CIFAR-100. Accuracies are top-1 on all test "
        "images: a run's best, its last, and the mean of its last five evaluations; then top-5 of the last. "
        "The paper's are top-5 on its own data: only their order compares. docs/results/scadles-details.md "
        "explains the differences.",
        "",
        *speed_up(summary, figures),
        *(line for part, lines_of in sections.items() if summary[part] for line in lines_of(summary[part])),
    ]
    return "\n".join(lines)


def _figures(results: Results, summary: dict[str, Any], out: Path) -> list[str]:
    """Draw what there is; the names drawn."""
    caption = f"{summary['command']}, {summary['date']}; virtual seconds; {summary['machine']}"
    drawn: dict[str, list[Panel]] = {}
    for task in SPEED_UP_TASKS:
        runs = results.get(f"speed-up, {task.name}", [])
        drawn[figure_of(task.name)] = _by_streams(f"{task.name}, {{}}", runs, _floor(task))
    drawn["scadles-figure9"] = [
        Panel(f"One label a device: {task.name}", "updates", "updates", [one.setting for one in measured])
        for task in LABELLED_TASKS
        if (measured := results.get(f"non-IID, {task.name}"))
    ]
    slow = [
        one
        for one in results.get(f"asynchronous, {MNIST.name}", [])
        if one.experiment.name.endswith("stragglers")
    ]
    drawn["scadles-async"] = _by_streams(f"{{}}, a quarter {SLOWER}x slower", slow, None)
    for name, panels in drawn.items():
        if panels:
            draw(panels, out / name, caption)
    return [name for name, panels in drawn.items() if panels]


def _floor(task: ScadlesTask) -> float | None:
    """Where all that matters lies near the top, the rest is left out."""
    return 0.7 if task.targets[-1] > 0.9 else None


def _by_streams(title: str, measured: list[Measured], floor: float | None) -> list[Panel]:
    """A panel of accuracy against virtual time for each distribution, a line for each method."""
    panels = []
    for distribution, rate in DISTRIBUTIONS.items():
        settings = [
            Setting(one.experiment.method.name, one.setting.outcomes)
            for one in measured
            if one.experiment.name.partition(" ")[0] == distribution
        ]
        if settings:
            where = title.format(f"{distribution} = {rate}")
            panels.append(Panel(where, "seconds", "virtual seconds", settings, floor))
    return panels


def _growing(found: dict[str, Any]) -> list[str]:
    lines = [
        "### If an iteration takes longer with more samples",
        "",
        f"{MNIST.name}, to the same level. Of an iteration of {MNIST.step_ms / 1000} s on 64 samples this "
        "part is theirs, so that conventional training takes as long as before.",
        "",
        "| streams | part | ScaDLES, s | speed-up |",
        "|---|--:|--:|--:|",
    ]
    for name, one in found.items():
        distribution, _, part = name.partition(" ")
        lines.append(
            f"| {distribution} | {float(part):.0%} | {integer(one['seconds'])} | {ratio(one['speed_up'])} |"
        )
    return [*lines, ""]


def _changing(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Streams that change",
        "",
        f"The paper's rates are constant. {MNIST.name}, {DEVICES} devices, iterations of "
        f"{FAST_STEP_MS / 1000:g} s, curves of one mean with each device somewhere else in its period. "
        "Gap: the longest time that any device was without a batch, waiting for its stream, or in rounds "
        "for that of others.",
        "",
        "| rate | method | updates | came | dropped | gap, s | best accuracy | last | last five | top-5 |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in found.items():
        rate, _, method = name.partition(" ")
        lines.append(
            f"| {rate} | {method} | {integer(one['updates'])} | {integer(one['samples'])} "
            f"| {percent(one['dropped'])} | {one['gap']:.1f} | {_learnt(one)} |"
        )
    return [*lines, ""]


def _buffers(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Buffers (Table IV)",
        "",
        "Samples that wait when an iteration begins, counted in runs of so many rounds: under persistence "
        "at the last one, under truncation at most, in a tenth as many. The paper's persisted counts are "
        "those of all 16 devices together by its equation (2), its truncated ones of the size of one "
        "device's: hence the reduction `as in the paper` is the sum over the largest, and `like for like` "
        "the sum over the sum.",
        "",
        "| streams | iteration of | rounds | persisted: sum | largest | truncated: sum | largest "
        "| paper: persisted | truncated | like for like | as in the paper | paper |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in found.items():
        distribution, _, model = name.partition(" ")
        lines.append(
            f"| {distribution} | {model} | {one['rounds']:,} "
            f"| {integer(one['persisted']['sum'])} | {integer(one['persisted']['largest'])} "
            f"| {integer(one['truncated']['sum'])} | {integer(one['truncated']['largest'])} "
            f"| {integer(one['paper']['persisted'])} | {integer(one['paper']['truncated'])} "
            f"| {integer(one['reduction']['sum_over_sum'])}x "
            f"| **{integer(one['reduction']['sum_over_largest'])}x** | {one['paper']['reduction']:,}x |"
        )
    return [*lines, ""]


def _compression(found: dict[str, Any]) -> list[str]:
    lines = []
    for task, runs in found.items():
        lines += [
            f"## Adaptive compression (Table V): {task}",
            "",
            f"Streams of S1'. Floats: values of gradients sent by all. {CELLS}: with indices and frames.",
            "",
            "| | CNC | paper | floats sent | paper | received | sent | both ways "
            "| best accuracy | last | last five | top-5 | paper, top-5 |",
            f"|---|{'--:|' * 12}",
        ]
        for name, one in runs.items():
            cnc, accuracy, floats = TABLE_5[task][name]
            lines.append(
                f"| {name} | {one['cnc']:.2f} | {cnc:g} | {one['floats']:.2e} | {floats} "
                f"| {' | '.join(RunTraffic(one['ingress'], one['egress'], one['dense']).cells())} "
                f"| {_learnt(one)} | {accuracy} |"
            )
        lines.append("")
    return lines


def _learnt(one: dict[str, float]) -> str:
    """The cells of best, last, mean of the last five, and top-5 of the last."""
    keys = ("accuracy", "last_accuracy", "last_five_accuracy", "top_5")
    return " | ".join(percent(one[key]) for key in keys)


def _non_iid(injected: dict[str, Any], figures: set[str], found: dict[str, Any]) -> list[str]:
    lines = [
        "## One label a device, and data injection (Figures 9 and 10)",
        "",
        "10 devices, streams of S1'. KB a round: samples shared at 3 KB each, as in the paper; received: as "
        "sent here. The CNN has BatchNorm, the MLP no normalisation. Shared statistics: BatchNorm that "
        "normalises by the average of all devices' running statistics, in training too.",
        "",
        "| task | (alpha, beta) | best accuracy | last | last five | top-5 | KB a round | received a round |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for task, runs in found.items():
        for name, one in runs.items():
            lines.append(
                f"| {task} | {name} | {_learnt(one)} "
                f"| {integer(one['kilobytes_a_round'])} | {size(round(one['bytes_a_round']))} |"
            )
    lines += ["", *image(figures, "scadles-figure9", "Figure 9")]
    if injected:
        sets = list(dict.fromkeys(name.partition(" ")[2] for name in injected))
        lines += [
            "KB a round by streams (the paper: 150 to 2,000):",
            "",
            f"| streams | {' | '.join(sets)} |",
            f"|---|{'--:|' * len(sets)}",
        ]
        for distribution in DISTRIBUTIONS:
            cells = [integer(injected.get(f"{distribution} {one}")) for one in sets]
            lines.append(f"| {distribution} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _asynchronous(figures: set[str], found: dict[str, Any]) -> list[str]:
    lines = [
        "## The same streams without rounds",
        "",
        "ScaDLES in rounds against asynchronous updates under AdaComp's rule, which count "
        "b / 64 each. Stragglers: a quarter of the devices takes four times as long. Accuracies (best / last "
        "/ mean of the last five; top-5; the highest of the last five in bold) by the same virtual second "
        "and in the same bytes, received and sent. Sparse: adaptive compression (CR 0.1, delta 0.3) against "
        "c = 0.1.",
    ]
    for task, runs in found.items():
        target = next(iter(runs.values()))["seconds_to_target"]["target"]
        lines += [
            "",
            f"**{task}**",
            "",
            f"| | rates | by second | rounds | async | seconds to {level_of(target)}: rounds | async "
            "| in, both ways | rounds | async |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for name, one in runs.items():
            reach = one["seconds_to_target"]
            lines.append(
                f"| {name} | {', '.join(f'{rate:g}' for rate in one['rate'].values())} "
                f"| {integer(one['seconds']['at'])} | {_side_by_side(one['seconds'])} "
                f"| {integer(reach['rounds'])} | {integer(reach['async'])} "
                f"| {size(one['traffic']['at'])} | {_side_by_side(one['traffic'])} |"
            )
    return [*lines, "", *image(figures, "scadles-async", "With stragglers")]


def _side_by_side(one: dict[str, Any]) -> str:
    """The cells of rounds and async, the better one by where it stayed in bold."""
    pair = [one["rounds"], one["async"]]
    stayed = [each["last_five_accuracy"] if each else 0.0 for each in pair]
    cells = [best_last_five(each) for each in pair]
    return " | ".join(
        f"**{cell}**" if at == max(stayed) else cell for cell, at in zip(cells, stayed, strict=True)
    )
