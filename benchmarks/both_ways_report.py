"""What the rows of both_ways.py came to: both-ways.json and both-ways.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from edgeflock.papers.machine import machine
from edgeflock.results.outcomes import Outcome, Setting
from edgeflock.shared.numbers import integer, percent, size

ACCURACIES = (0.90, 0.95, 0.97)
COSTS = {
    "both_ways": "bytes both ways",
    "up": "bytes up",
    "down": "bytes down",
    "gradients": "gradients",
    "updates": "updates",
}
"""What it takes to an accuracy, and how that is called."""

LAST = 5
"""Evaluations whose mean tells where a run is at its end."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A method with one setting, and its runs."""

    method: str
    setting: str
    runs: Setting


Grid = dict[str, dict[str, Figures]]
"""method -> setting -> what came of it."""


def grid_of(found: Sequence[Measured]) -> Grid:
    """The figures of all runs."""
    grid: Grid = {}
    for one in found:
        grid.setdefault(one.method, {})[one.setting] = figures_of(one)
    return grid


def joined(now: Grid, earlier: Grid) -> Grid:
    """Return both grids as one.

    If they have different seeds of a setting, its means are over all seeds. If they have the same, `now` is
    used, unless it has only some of them.
    """
    grid = {name: dict(settings) for name, settings in earlier.items()}
    for name, settings in now.items():
        known = grid.setdefault(name, {})
        for setting, figures in settings.items():
            before, seeds = known.get(setting), set(figures["seeds"])
            if before is None or seeds >= set(before["seeds"]):
                known[setting] = figures
            elif not seeds & set(before["seeds"]):
                known[setting] = together(before, figures)
    return grid


def together(one: Figures, other: Figures) -> Figures:
    """The figures of a setting over the seeds of both."""
    count, others = len(one["seeds"]), len(other["seeds"])

    def mean(a: float, b: float) -> float:
        return (count * a + others * b) / (count + others)

    def costs_of(a: Figures | None, b: Figures | None) -> Figures | None:
        return {cost: mean(a[cost], b[cost]) for cost in COSTS} if a and b else None

    accuracy = {
        name: {
            "mean": mean(a["mean"], b["mean"]),
            "min": min(a["min"], b["min"]),
            "max": max(a["max"], b["max"]),
        }
        for name, a in one["accuracy"].items()
        if (b := other["accuracy"][name])
    }
    return {
        "setting": one["setting"],
        "seeds": [*one["seeds"], *other["seeds"]],
        "ended": [*one["ended"], *other["ended"]],
        "accuracy": accuracy,
        "at": {accuracy: costs_of(a, other["at"][accuracy]) for accuracy, a in one["at"].items()},
        "end": costs_of(one["end"], other["end"]),
    }


def summarise(grid: Grid, ours: str, data: str, command: str) -> Figures:
    """What both-ways.json holds."""
    best = {name: best_of(list(settings.values())) for name, settings in grid.items()}
    own = best.get(ours)
    rivals = {name: figures for name, figures in best.items() if name != ours}
    return {
        "both_ways_bytes_at_97": own and own["at"]["0.97"] and own["at"]["0.97"]["both_ways"],
        "ours": ours,
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "data": data.rpartition("/")[2],
        "methods": best,
        "ratios": {name: ratios(own, rival) for name, rival in rivals.items()} if own else {},
        "rivals_win": {name: list(wins(own, rival)) for name, rival in rivals.items()} if own else {},
        "grid": grid,
    }


def best_of(several: Sequence[Figures]) -> Figures:
    """Return the setting with the fewest bytes both ways to 97%, or else the best accuracy.

    Only settings with the most seeds take part: a grid is run with one seed, and its best with all.
    """

    def merit(one: Figures) -> tuple[int, bool, float]:
        reached = one["at"]["0.97"]
        found = -reached["both_ways"] if reached else one["accuracy"]["best"]["mean"]
        return len(one["seeds"]), reached is not None, found

    return max(several, key=merit)


def figures_of(one: Measured) -> Figures:
    """Means over the seeds; what it took to an accuracy is None unless every run came so far."""
    runs = one.runs.outcomes
    accuracies = {
        "best": [run.best for run in runs],
        "last": [run.rows[-1]["accuracy"] for run in runs],
        "last_five": [fmean(row["accuracy"] for row in run.rows[-LAST:]) for run in runs],
    }
    return {
        "setting": one.setting,
        "seeds": [run.end["seed"] for run in runs],
        "ended": [run.end["ended"] for run in runs],
        "accuracy": {
            name: {"mean": fmean(several), "min": min(several), "max": max(several)}
            for name, several in accuracies.items()
        },
        "at": {f"{accuracy:.2f}": reaching(runs, accuracy) for accuracy in ACCURACIES},
        "end": _mean([costs(run, run.rows[-1]) for run in runs]),
    }


def reaching(runs: Sequence[Outcome], accuracy: float) -> Figures | None:
    """The mean costs up to the first evaluation with `accuracy`; None if a run never came so far."""
    firsts = [(run, run.first_reaching(accuracy)) for run in runs]
    reached = [costs(run, row) for run, row in firsts if row]
    return _mean(reached) if len(reached) == len(runs) else None


def costs(run: Outcome, row: Figures) -> Figures:
    """Of a run up to one of its evaluations."""
    return {
        "both_ways": row["ingress"] + row["egress"],
        "up": row["ingress"],
        "down": row["egress"],
        "gradients": row["updates"] * run.end["gradients_per_update"],
        "updates": row["updates"],
    }


def ratios(own: Figures, rival: Figures) -> dict[str, dict[str, float] | None]:
    """What the rival takes over what we take, at each accuracy that both reached."""
    found: dict[str, dict[str, float] | None] = {}
    for accuracy, theirs in rival["at"].items():
        mine = own["at"][accuracy]
        found[accuracy] = {cost: theirs[cost] / mine[cost] for cost in COSTS} if theirs and mine else None
    return found


def wins(own: Figures, rival: Figures) -> Iterator[str]:
    """Where the rival is better than we are."""
    for accuracy, theirs in rival["at"].items():
        mine, shown = own["at"][accuracy], f"{float(accuracy):.0%}"
        if theirs and not mine:
            yield f"reaches {shown} in every run, and ours does not"
        for cost, called in COSTS.items():
            if theirs and mine and theirs[cost] < mine[cost]:
                both = f"{_shown(cost, theirs[cost])} against {_shown(cost, mine[cost])}"
                yield f"fewer {called} to {shown} ({both})"
    for which, called in (("best", "best"), ("last", "last"), ("last_five", f"mean of the last {LAST}")):
        theirs, mine = (one["accuracy"][which]["mean"] for one in (rival, own))
        if theirs > mine:
            yield f"higher accuracy, {called} ({percent(theirs)} against {percent(mine)})"


def markdown(summary: Figures) -> str:
    """both-ways.md."""
    lines = [
        "# Both ways: every method in one table",
        "",
        f"`{summary['command']}` on {summary['date']}: {summary['machine']}. {summary['data']}, 200 devices, "
        "the 211,690-parameter CNN, batches of 10. Bytes are those of WebSocket messages with their frames, "
        "first models included, up to the first evaluation that reached the accuracy; for FedAvg and FedBuff "
        "of models and changes only, without greetings and receipts, and an update is a client's message "
        "after all its gradients. Means over the seeds; a method's best setting of its grid, which is in "
        "both-ways.json whole. A dash: at least one seed never came so far.",
        "",
        "| method | setting | seeds | up to 97% | down | both ways | gradients | updates "
        "| both ways to 90% | gradients | both ways to 95% | gradients | best | last | last five |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, one in summary["methods"].items():
        wide = [_cell(one, "0.97", cost) for cost in ("up", "down", "both_ways", "gradients", "updates")]
        short = [_cell(one, at, cost) for at in ("0.90", "0.95") for cost in ("both_ways", "gradients")]
        ends = [percent(one["accuracy"][which]["mean"]) for which in ("best", "last", "last_five")]
        lines.append(
            f"| {' | '.join([name, one['setting'], str(len(one['seeds'])), *wide, *short, *ends])} |"
        )
    lines += ["", *_against(summary)]
    return "\n".join(lines)


def _against(summary: Figures) -> list[str]:
    """The ratios, and where rivals win."""
    if summary["ours"] not in summary["methods"]:
        return [f'No run of "{summary["ours"]}" has ended yet, so there is nothing to compare.', ""]
    lines = [
        f'## Against "{summary["ours"]}"',
        "",
        "What a method takes over what ours takes: above 1 ours is the smaller.",
        "",
        "| method | bytes both ways to 90% | 95% | 97% | up to 97% | down to 97% "
        "| gradients to 90% | 95% | 97% |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, found in summary["ratios"].items():
        cells = [_times(found[f"{at:.2f}"], "both_ways") for at in ACCURACIES]
        cells += [_times(found["0.97"], cost) for cost in ("up", "down")]
        cells += [_times(found[f"{at:.2f}"], "gradients") for at in ACCURACIES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    won = [f"- {name}: {'; '.join(several)}." for name, several in summary["rivals_win"].items() if several]
    return [*lines, "", "## Where others win", "", *(won or ["Nowhere."]), ""]


def _mean(several: Sequence[Figures]) -> Figures:
    return {cost: fmean(one[cost] for one in several) for cost in COSTS}


def _cell(one: Figures, accuracy: str, cost: str) -> str:
    reached = one["at"][accuracy]
    return _shown(cost, reached[cost]) if reached else "-"


def _shown(cost: str, value: float) -> str:
    return integer(value) if cost in ("gradients", "updates") else size(value)


def _times(ratios: dict[str, float] | None, cost: str) -> str:
    return (
        "-" if ratios is None else f"{ratios[cost]:,.2f}x" if ratios[cost] < 100 else f"{ratios[cost]:,.0f}x"
    )
