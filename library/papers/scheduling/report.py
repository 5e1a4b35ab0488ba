"""The report of the scheduling paper's reproduction: its claims next to ours, and the figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from edgeflock.papers.scheduling.completion import SCENARIOS
from edgeflock.papers.scheduling.experiments import SCHEMES, Averages, CompletionMeans, Draw
from edgeflock.results.figures import COLOURS, GRID, label_axes, panels
from edgeflock.shared.numbers import number

_MARKERS = dict(zip(SCHEMES, ("v", "^", "", "s", "o", "x"), strict=True))


@dataclass(frozen=True, slots=True)
class CompletionPanel:
    """Mean completion times against r or k."""

    title: str
    label: str
    averages: Averages


def draw(shown: Sequence[CompletionPanel], path: Path, caption: str) -> None:
    """The panels side by side, as `path`.png and .svg."""
    with panels(len(shown), path, caption, 4.6, 4.2) as grid:
        for axes, panel in zip(grid, shown, strict=True):
            _draw_panel(axes, panel)


def _draw_panel(axes: Axes, panel: CompletionPanel) -> None:
    for scheme, means in panel.averages.items():
        points = [(at, mean) for at, mean in enumerate(means, 1) if mean is not None]
        colour = COLOURS[SCHEMES.index(scheme)]
        if len(points) == 1:  # RA has r = n only: a line to compare the others with
            axes.axhline(points[0][1], color=colour, linestyle="--", linewidth=1.2, label=scheme)
            continue
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, marker=_MARKERS[scheme], markersize=5, linewidth=1.4, label=scheme)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    label_axes(axes, panel.title, "average completion time", panel.label)
    axes.set_xticks(range(1, len(next(iter(panel.averages.values()))) + 1))
    axes.grid(color=GRID, linewidth=0.6, which="both")
    axes.legend(frameon=False, fontsize=8)


PAPER = {"scenario 1": (0.16, 9), "scenario 2": (0.20, 6)}
"""What SS takes less than RA at r = n, around; at which r it is about as fast."""


def summarise(
    drawn: dict[str, list[Draw]], played: dict[str, list[CompletionMeans]], about: dict[str, Any]
) -> dict[str, Any]:
    """What scheduling.json holds."""
    return {
        **about,
        "scenarios": {
            scenario: {
                "gain_of_SS_over_RA": {"paper": PAPER[scenario][0], "draws": [one.gain for one in draws]},
                "r_of_SS_as_RA": {"paper": PAPER[scenario][1], "draws": [one.as_good for one in draws]},
                "against_SS": {
                    scheme: [_against(draws, scheme, at) for at in range(len(draws[0].by_load["SS"]))]
                    for scheme in SCHEMES
                },
                "of_the_figure": {
                    "by_load": usual(draws).by_load,
                    "by_target": {str(r): by for r, by in usual(draws).by_target.items()},
                },
                "decided_on_the_way": [
                    {"world": one.world, "r": one.r, **one.ratios} for one in played[scenario]
                ],
            }
            for scenario, draws in drawn.items()
        },
    }


def usual(draws: Sequence[Draw]) -> Draw:
    """The draw with the median gain."""
    return sorted(draws, key=lambda one: one.gain)[len(draws) // 2]


def _against(draws: Sequence[Draw], scheme: str, at: int) -> float | None:
    """The median over the draws of the scheme's completion time over that of SS."""
    ratios = [
        mean / base
        for one in draws
        if (mean := one.by_load[scheme][at]) is not None and (base := one.by_load["SS"][at])
    ]
    return median(ratios) if ratios else None


def report(summary: dict[str, Any], drawn: dict[str, list[Draw]], out: Path) -> str:
    """scheduling.md. Draws the figures into `out`."""
    caption = f"{summary['command']}, {summary['date']}; {summary['machine']}"
    figure_1 = [
        CompletionPanel(f"{name}, k = n", "computation load r", usual(draws).by_load)
        for name, draws in drawn.items()
    ]
    draw(figure_1, out / "scheduling-figure1", caption)
    fewer = [
        CompletionPanel(f"{name}, r = {r}", "computation target k", _defined(by))
        for name, draws in drawn.items()
        for r, by in usual(draws).by_target.items()
    ]
    draw(fewer, out / "scheduling-targets", caption)
    lines = [
        "# Computation scheduling, reproduced",
        "",
        f"`{summary['command']}` on {summary['date']}: {summary['machine']}. n = 10 workers with shifted "
        "exponential delays (equation 9). The paper draws the workers' mu and tau once and does not say what "
        f"came out; here they are drawn {summary['draws']} times. A table gives the median over the draws, a "
        "figure the draw with the median gain of SS over RA. CS and SS are exact (equation 2); RA, PC, PCMM "
        f"and the lower bound (Algorithm 1) are means of {summary['samples']:,} rounds.",
        "",
        "## Figure 1: all results, k = n",
        "",
        *_gains(summary),
        "![Figure 1](scheduling-figure1.png)",
        "",
        *_by_load(summary),
        "## Fewer than all results, k < n",
        "",
        "Of the draws in the figures. PC and PCMM are for k = n only.",
        "",
        "![Targets](scheduling-targets.png)",
        "",
        *_by_target(summary),
        *_decided(summary),
    ]
    return "\n".join(lines)


def _defined(averages: Averages) -> Averages:
    """Without the schemes that are for k = n only."""
    return {name: means for name, means in averages.items() if means[0] is not None}


def _gains(summary: dict[str, Any]) -> list[str]:
    lines = [
        "What SS takes less than RA at r = n, and from which r on it is as fast as that:",
        "",
        "| | less: paper | median | smallest | largest | r: paper | median | smallest | largest |",
        f"|---|{'--:|' * 8}",
    ]
    for name, one in summary["scenarios"].items():
        gains, loads = one["gain_of_SS_over_RA"]["draws"], one["r_of_SS_as_RA"]["draws"]
        less, r = PAPER[name]
        lines.append(
            f"| {name} | about {less:.0%} | {median(gains):.1%} | {min(gains):.1%} | {max(gains):.1%} "
            f"| {r} | {median(loads):g} | {min(loads)} | {max(loads)} |"
        )
    return [*lines, ""]


def _by_load(summary: dict[str, Any]) -> list[str]:
    lines = ["Completion times over that of SS at the same r:", ""]
    for name, one in summary["scenarios"].items():
        others = {scheme: ratios for scheme, ratios in one["against_SS"].items() if scheme != "SS"}
        lines += _table(f"{name}, r =", others, ".2f")
    return lines


def _by_target(summary: dict[str, Any]) -> list[str]:
    lines = []
    for name, one in summary["scenarios"].items():
        for r, by in one["of_the_figure"]["by_target"].items():
            shown = {scheme: by[scheme] for scheme in ("RA", "CS", "SS", "lower bound")}
            lines += _table(f"{name}, r = {r}, k =", _defined(shown), ".3g")
    return lines


def _table(title: str, averages: Averages, form: str) -> list[str]:
    """A row for each scheme, a column for each r or k from 1 on."""
    columns = range(1, len(next(iter(averages.values()))) + 1)
    return [
        f"| {title} | {' | '.join(map(str, columns))} |",
        f"|---|{'--:|' * len(columns)}",
        *(
            f"| {name} | {' | '.join(number(one, form) for one in means)} |"
            for name, means in averages.items()
        ),
        "",
    ]


def _decided(summary: dict[str, Any]) -> list[str]:
    lines = [
        "## An order that is decided on the way",
        "",
        "Beyond the paper: the server hands out the next task when a worker asks, by what has come "
        "in so far. Completion times over those of the lower bound, k = n, from the second round on. As "
        "before: each worker is as fast as in the last round. Changing: a tenth of the workers draw a new "
        "speed each round. Independent: all do, as in the paper, so that what is known of a round tells "
        "nothing of the next. Everywhere: each worker holds all tasks and computes at most r of them. "
        "Cyclic: it holds the r of its column alone; `least` is what that leaves possible for who knows all "
        "times beforehand.",
        "",
        "| | speeds | r | adaptive, everywhere | SS | CS | RA | adaptive, cyclic | least, cyclic |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    saved = []
    for name, one in summary["scenarios"].items():
        for row in one["decided_on_the_way"]:
            cells = ("adaptive, everywhere", "SS", "CS", "RA", "adaptive, cyclic", "least, cyclic")
            numbers = " | ".join(number(row.get(cell), ".3f") for cell in cells)
            lines.append(f"| {name} | {row['world']} | {row['r']} | {numbers} |")
            if row["world"] == "changing":
                saved.append(1 - row["adaptive, everywhere"] / row["SS"])
    return [
        *lines,
        "",
        f"Where speeds change, the adaptive order takes {fmean(saved):.0%} less than the staircase on "
        f"average over these rows of {len(SCENARIOS)} scenarios.",
        "",
    ]
