"""The tables of the speed-up in ScaDLES' report."""

from typing import Any

from edgeflock.papers.scadles.settings import (
    ADAPTIVE,
    BATCH,
    DDL,
    LOCAL,
    LOCAL_STEPS,
    SCADLES,
    SMALL,
    SPEED_UP_TASKS,
)
from edgeflock.shared.numbers import CELLS, RunTraffic, integer, percent, ratio

SPEED_UPS = {
    "ResNet152": {"S1": (1.89, -0.06), "S2": (1.15, -0.32), "S1'": (3.29, -0.13), "S2'": (1.42, -0.21)},
    "VGG19": {"S1": (1.56, -1.93), "S2": (2.83, -4.18), "S1'": (2.06, -2.03), "S2'": (2.13, -1.59)},
}
"""Table VI: model -> streams -> (speed-up, change of accuracy in points)."""

_PAPER = {task.name: SPEED_UPS[task.paper] for task in SPEED_UP_TASKS}


def image(figures: set[str], name: str, text: str) -> list[str]:
    return [f"![{text}]({name}.png)", ""] if name in figures else []


def figure_of(task: str) -> str:
    """The name of a task's figure."""
    return f"scadles-speedup-{task.lower().replace(' ', '-')}"


_NAMES = (DDL.name, SCADLES.name, ADAPTIVE.name, LOCAL.name)


def speed_up(summary: dict[str, Any], figures: set[str]) -> list[str]:
    lines = [
        "## Virtual time to the same accuracy (Table VI, Figure 7)",
        "",
        "Adaptive: ScaDLES with CR 0.1, delta 0.3. Local, which the paper does not have: ScaDLES with a "
        f"batch taken as {LOCAL_STEPS} steps on a quarter of it each, in the time of one iteration.",
        "",
    ]
    for task, streams in summary["speed_up"].items():
        target = next(iter(streams.values()))["target"]
        lines += [
            f"**{task}**, to {level_of(target)}, the highest that DDL and ScaDLES reach on all streams: "
            "virtual seconds, and rounds in brackets.",
            "",
            "| streams | slowest | DDL | ScaDLES | adaptive | local | speed-up: ScaDLES | adaptive | local "
            "| paper |",
            f"|---|{'--:|' * 9}",
        ]
        for name, one in streams.items():
            taken = [f"{integer(one['seconds'].get(n))} ({integer(one['rounds'].get(n))})" for n in _NAMES]
            times = [f"**{ratio(one['speed_up'].get(n))}**" for n in _NAMES[1:]]
            lines.append(
                f"| {name} | {one['slowest_rate']:.0f}/s | {' | '.join(taken)} | {' | '.join(times)} "
                f"| {_PAPER[task][name][0]}x |"
            )
        lines += ["", *_traffic(target, streams)]
        lines += ["", *_accuracies(task, streams), "", *_other_levels(streams)]
        lines += ["", *image(figures, figure_of(task), f"{task}: accuracy against time")]
    return lines


def _traffic(target: float | None, streams: dict[str, Any]) -> list[str]:
    """Bytes until the level; a dash where it was not reached."""
    lines = [
        f"{CELLS} for as many updates: to {level_of(target)}.",
        "",
        "| streams | method | received | sent | both ways |",
        "|---|---|--:|--:|--:|",
    ]
    for name, one in streams.items():
        for method, ingress in one["ingress"].items():
            cells = ["-"] * 3
            if ingress is not None:
                cells = RunTraffic(ingress, one["egress"][method], one["dense"][method]).cells()
            lines.append(f"| {name} | {method} | {' | '.join(cells)} |")
    return lines


def _accuracies(task: str, streams: dict[str, Any]) -> list[str]:
    lines = [
        "Accuracies (best / last / mean of the last five; top-5 of the last) and learning rates; the paper's "
        "change is that of ScaDLES against DDL, in points of top-5:",
        "",
        "| streams | seeds | DDL | ScaDLES | adaptive | local | rates: DDL, ScaDLES, local "
        "| paper's change |",
        f"|---|{'--:|' * 7}",
    ]
    for name, one in streams.items():
        each = [best_last_five(one["learnt"].get(n)) for n in _NAMES]
        found = one["learning_rate"]
        rates = [f"{found[n]:g}" if n in found else "-" for n in (DDL.name, SCADLES.name, LOCAL.name)]
        seeds = max(map(len, one["seeds"].values()))
        lines.append(
            f"| {name} | {seeds} | {' | '.join(each)} | {', '.join(rates)} | {_PAPER[task][name][1]} |"
        )
    return lines


def best_last_five(learnt: dict[str, float | None] | None) -> str:
    """A run's accuracies in one cell: 96.10% / 95.80% / 95.75%; 99.80%."""
    if learnt is None:
        return "-"
    cells = " / ".join(percent(learnt[key]) for key in ("accuracy", "last_accuracy", "last_five_accuracy"))
    return cells if learnt["top_5"] is None else f"{cells}; {percent(learnt['top_5'])}"


def noisy(found: dict[str, Any]) -> list[str]:
    """The table of small batches."""
    levels = list(next(iter(next(iter(found.values())).values()))["speed_up_to"])
    lines = [
        "### Where noise limits the speed",
        "",
        f"CIFAR-10 on S2 and S2' with a {SMALL}th of their samples: batches of {BATCH // SMALL} in "
        "conventional training, and of 16 to 19 on average in ScaDLES. Nobody waits; what is left is that a "
        "larger batch is a better gradient. Speed-up of ScaDLES to each accuracy.",
        "",
        "| model | streams | seeds | DDL | ScaDLES | rates "
        f"| {' | '.join(level_of(float(at)) for at in levels)} |",
        f"|---|---|{'--:|' * (4 + len(levels))}",
    ]
    for model, streams in found.items():
        for name, one in streams.items():
            each = [best_last_five(one["learnt"][method]) for method in (DDL.name, SCADLES.name)]
            rates = ", ".join(f"{rate:g}" for rate in one["learning_rate"].values())
            cells = [ratio(one["speed_up_to"][level]) for level in levels]
            lines.append(f"| {model} | {name} | {one['seeds']} | {' | '.join([*each, rates, *cells])} |")
    return [*lines, ""]


def _other_levels(streams: dict[str, Any]) -> list[str]:
    levels = list(next(iter(streams.values()))["speed_up_to"])
    lines = [
        "Speed-up to other levels: ScaDLES, adaptive, local.",
        "",
        f"| streams | {' | '.join(level_of(float(level)) for level in levels)} |",
        f"|---|{'--:|' * len(levels)}",
    ]
    for name, one in streams.items():
        each = [one["speed_up_to"][level] for level in levels]
        cells = [", ".join(ratio(at.get(n)) for n in _NAMES[1:]) for at in each]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def level_of(accuracy: float | None) -> str:
    return "no level" if accuracy is None else f"{accuracy:.0%}"
