"""What the rows of optimizers.py came to: the table of a task, each method at its best setting."""

from statistics import fmean

from benchmarks.both_ways_report import Figures, Measured, costs
from edgeflock.shared.numbers import percent, size, times

PLAIN = "sgd"
"""What the others are compared with."""


def figures(one: Measured, accuracies: tuple[float, ...]) -> dict[float, Figures]:
    """What it took to each accuracy that every run reached: means over the seeds."""
    found: dict[float, Figures] = {}
    for accuracy in accuracies:
        reached = [(run, row) for run in one.runs.outcomes if (row := run.first_reaching(accuracy))]
        if len(reached) == len(one.runs.outcomes):
            taken = [costs(run, row) for run, row in reached]
            found[accuracy] = {name: fmean(each[name] for each in taken) for name in taken[0]}
    return found


def best(several: list[Measured], accuracies: tuple[float, ...]) -> Measured:
    """Return the run with the highest accuracy that all runs reached, then the fewest bytes.

    Only those with the most seeds take part. If none reached any, it is the one that came closest.
    """

    def merit(one: Measured) -> tuple[int, float, float, float]:
        found = figures(one, accuracies)
        farthest = max(found, default=0.0)
        seeds = len(one.runs.outcomes)
        return seeds, farthest, -found[farthest]["both_ways"] if found else 0.0, fmean(one.runs.best())

    return max(several, key=merit)


def methods(found: list[Measured]) -> dict[str, list[Measured]]:
    """The settings of each method, in their order."""
    names = dict.fromkeys(one.method for one in found)
    return {name: [one for one in found if one.method == name] for name in names}


def table(name: str, accuracies: tuple[float, ...], found: list[Measured]) -> list[str]:
    """Return the Markdown table of a task.

    Each method is at its best setting, with how many times less it took than plain SGD.
    """
    tried = methods(found)
    chosen = {method: best(several, accuracies) for method, several in tried.items()}
    plain = figures(chosen[PLAIN], accuracies) if PLAIN in chosen else {}
    lines = [
        f"## {name}",
        "",
        "| method | best setting | of | seeds | best accuracy | last five | to | gradients | updates | up "
        "| down | both ways | less than sgd: updates | both ways |",
        f"|---|---|{'--:|' * 12}",
    ]
    for method, one in chosen.items():
        reached, runs = figures(one, accuracies), one.runs
        head = [method, one.setting, f"{len(tried[method])}", f"{len(runs.outcomes)}"]
        head += [percent(fmean(each)) for each in (runs.best(), runs.last_five())]
        for accuracy in accuracies:
            came = sum(run.first_reaching(accuracy) is not None for run in runs.outcomes)
            cells = [
                *head,
                f"{accuracy:.0%}",
                f"{came} of {len(runs.outcomes)} seeds" if came else "-",
                *["-"] * 6,
            ]
            head = [""] * len(head)
            if at := reached.get(accuracy):
                cells[7:9] = f"{at['gradients']:,.0f}", f"{at['updates']:,.0f}"
                cells[9:12] = size(at["up"]), size(at["down"]), size(at["both_ways"])
                if own := plain.get(accuracy):
                    cells[12:] = (_less(own[key] / at[key]) for key in ("updates", "both_ways"))
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _less(ratio: float) -> str:
    return times(ratio) if ratio >= 0.05 else f"{ratio:.1g}x"
