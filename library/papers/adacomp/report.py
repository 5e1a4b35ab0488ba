"""The report of a reproduction: the paper's numbers next to ours, and the figures."""

from pathlib import Path
from statistics import fmean
from typing import Any

from edgeflock.papers.adacomp.experiments import ASGD
from edgeflock.papers.reproduce import Measured, Reproduction, Results
from edgeflock.results.figures import Panel, draw
from edgeflock.results.outcomes import Setting
from edgeflock.shared.numbers import CELLS, integer, percents, times

ACCURACIES = (0.95, 0.97, 0.98)
"""Accuracies up to which updates and bytes are counted."""


def figures_of(one: Measured) -> dict[str, Any]:
    """Return the entry of one experiment in adacomp.json."""
    setting, averaged = one.setting.unaveraged, one.setting
    return {
        "learning_rate": one.experiment.method.rate,
        "seeds": [outcome.end["seed"] for outcome in setting.outcomes],
        "final_accuracy": _spread(setting.best()),
        "last_accuracy": _spread(setting.last()),
        "last_ten_accuracy": _spread(setting.last_ten()),
        "averaged_final_accuracy": _spread(averaged.best()),
        "averaged_last_ten_accuracy": _spread(averaged.last_ten()),
        "updates": one.experiment.file.end.updates,
        "devices": one.experiment.file.fleet.devices,
        "ended": [outcome.end["ended"] for outcome in setting.outcomes],
        "at": {f"{accuracy:.2f}": _reached(setting, accuracy) for accuracy in ACCURACIES},
        "averaged_at": {f"{accuracy:.2f}": _reached(averaged, accuracy) for accuracy in ACCURACIES},
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": fmean(values), "min": min(values), "max": max(values)}


def _reached(setting: Setting, accuracy: float) -> dict[str, Any] | None:
    """Return updates and bytes until every run reached the accuracy. None if one did not."""
    updates, traffic = setting.costs_to_reach(accuracy, "updates"), setting.traffic_to_reach(accuracy)
    if not updates or traffic is None:
        return None
    return {
        "updates": fmean(updates),
        "ingress": traffic.ingress,
        "egress": traffic.egress,
        "reduction": traffic.reduction,
        "reduction_both_ways": traffic.reduction_both_ways,
    }


def summarise(results: Results, options: Reproduction) -> dict[str, Any]:
    """Return the contents of adacomp.json."""
    parts = {
        part.replace(" ", ""): {one.experiment.name: figures_of(one) for one in measured}
        for part, measured in results.items()
    }
    rivals = {**parts["figure3"], **parts["record"]}
    reaching = {name: reached for name, one in rivals.items() if (reached := one["averaged_at"]["0.97"])}
    dense = reaching.get(ASGD.name)
    winner = min(reaching, key=lambda name: float(reaching[name]["ingress"]), default=None)
    best = reaching[winner] if winner else None
    return {
        **options.about,
        "data": options.data.rpartition("/")[2],
        "final_accuracy": "the highest of a run's evaluations, as in the paper",
        "last_ten_accuracy": "the mean of a run's last ten evaluations",
        "averaged": "the averaged model of the same runs, which the devices do not get",
        "reduction": "of as many updates as dense float32; both ways: and as many dense models",
        "reduction_at_97": dense["ingress"] / best["ingress"] if dense and best else None,
        "reduction_both_ways_at_97": _both(dense) / _both(best) if dense and best else None,
        "best_at_97": winner,
        **parts,
    }


def _both(reached: dict[str, Any]) -> float:
    return float(reached["ingress"] + reached["egress"])


PAPER: dict[str, dict[str, str]] = {
    "figure 3": {
        "ASGD": "97.85%",
        "Comp-ASGD c=0.1": "96.07%",
        "Comp-ASGD c=0.01": "95.11%",
        "AdaComp c=0.1": "98.7%",
        "AdaComp c=0.01": "98.59%",
    },
    "table 2": {
        "60,000 images, no crashes, n=200": "97.44%",
        "60,000 images, crashes, n=200": "97.17%",
        "12,000 images, no crashes, n=200": "95.47%",
        "12,000 images, crashes, n=200": "95.24%",
        "6,000 images, no crashes, n=100": "94.35%",
    },
    "figure 4": {
        "60,000 images, one class": "98.59%",
        "60,000 images, three classes": "98.36%",
        "12,000 images, one class": "97.66%",
        "12,000 images, three classes": "97.00%",
    },
}
"""The paper's final accuracies: the mean over its runs of the highest accuracy of each."""


def report(results: Results, summary: dict[str, Any], out: Path) -> str:
    """adacomp.md. Writes the figures into `out`."""
    record, figure_3 = results["record"], results["figure 3"]
    caption = f"{summary['command']}, {summary['date']}; mean and range over the seeds; {summary['machine']}"
    settings = [one.setting.unaveraged for one in figure_3]
    best = [one.setting for one in record if one.experiment.name == "record"]
    panels = [
        Panel("Accuracy against updates", "updates", "updates", settings, 0.9),
        *(
            Panel(f"Accuracy against traffic {ways}", key, label, settings + best, 0.9, log=True)
            for ways, key, label in (
                ("up", "ingress", "bytes received by the server"),
                ("both ways", "traffic", "bytes received and sent by the server"),
            )
        ),
    ]
    draw(panels, out / "adacomp-figure3", caption)
    fleets = [one.setting.unaveraged for one in results.get("figure 4", [])]
    if fleets:
        panel = Panel("Three classes of workers", "updates", "updates", fleets, 0.85)
        draw([panel], out / "adacomp-figure4", caption)
    lines = [
        "# AdaComp, reproduced",
        "",
        f"`{summary['command']}` on {summary['date']}: {summary['machine']}. n = 200 emulated devices, "
        "batches of 10, MNIST. Accuracy is on the 10,000 test images, as a mean over the seeds (minimum to "
        "maximum in brackets). A run has its best evaluation, which the paper gives, its last one, and the "
        "mean of its last ten. The averaged model is of the same runs: the server averages its "
        "versions, and devices train as without it. Traffic is every WebSocket message with its frame. "
        "docs/results/compression-record.md explains the differences from the paper.",
        "",
        *_figure_3([*figure_3, *record], summary),
        *_accuracies(
            "Table II: half the workers crash (MLP, AdaComp c=0.01)", "table 2", results.get("table 2", [])
        ),
        *_accuracies(
            "Figure 4: classes of workers with rates 100 : 10 : 1 (AdaComp c=0.01)",
            "figure 4",
            results.get("figure 4", []),
        ),
        *(["![Figure 4](adacomp-figure4.png)", ""] if fleets else []),
        *_rates(results.get("grid", [])),
    ]
    return "\n".join(lines)


def _figure_3(measured: list[Measured], summary: dict[str, Any]) -> list[str]:
    reduction, both = summary["reduction_at_97"], summary["reduction_both_ways_at_97"]
    reached = (
        f"**{reduction:,.0f} times** less traffic up than dense ASGD to 97%, **{times(both)} both ways** "
        f"({summary['best_at_97']}; by the averaged model of both, evaluated every "
        f"{measured[0].experiment.file.fleet.evaluate_every:,} updates; below, ASGD is without "
        "averaging; the paper's best: 191 times, up, without averaging)."
        if reduction
        else "Dense ASGD did not reach 97% in every run, so there is no ratio at 97%."
    )
    lines = [
        "## Figure 3: accuracy, updates and traffic",
        "",
        reached,
        "",
        f"| method | seeds | rate | updates | {_LEARNT} | paper | updates to 95% | 97% | 98% |",
        f"|---|{'--:|' * 12}",
    ]
    for one in measured:
        updates = [one.setting.unaveraged.costs_to_reach(accuracy, "updates") for accuracy in ACCURACIES]
        name = one.experiment.name
        lines.append(
            f"| {name} | {len(one.setting.outcomes)} | {one.experiment.method.rate:g} "
            f"| {one.experiment.file.end.updates:,} | {_learnt(one)} | {PAPER['figure 3'].get(name, '-')} "
            f"| {' | '.join(integer(fmean(each) if each else None) for each in updates)} |"
        )
    lines += [
        "",
        'A dash: at least one seed never came so far. The record is `preset = "low-bandwidth"` with one step '
        "an update and the exact downlink.",
        "",
        f"{CELLS} for as many updates. The ratios above are to what dense ASGD took, in updates of its own.",
        "",
        "| to | method | received | sent | both ways |",
        "|--:|---|--:|--:|--:|",
    ]
    for accuracy in ACCURACIES:
        for one in measured:
            if traffic := one.setting.unaveraged.traffic_to_reach(accuracy):
                lines.append(f"| {accuracy:.0%} | {one.experiment.name} | {' | '.join(traffic.cells())} |")
    return [*lines, "", "![Figure 3](adacomp-figure3.png)", ""]


_LEARNT = "best accuracy | last | last ten | averaged model: best | last ten"


def _learnt(one: Measured) -> str:
    """The cells under `_LEARNT`."""
    newest, averaged = one.setting.unaveraged, one.setting
    each = (newest.best(), newest.last(), newest.last_ten(), averaged.best(), averaged.last_ten())
    return " | ".join(map(percents, each))


def _rates(measured: list[Measured]) -> list[str]:
    if not measured:
        return []
    lines = ["## Learning rates", "", f"| method, rate | updates | seeds | {_LEARNT} |", f"|---|{'--:|' * 7}"]
    for one in measured:
        updates = one.experiment.file.end.updates
        lines.append(
            f"| {one.experiment.name} | {updates:,} | {len(one.setting.outcomes)} | {_learnt(one)} |"
        )
    return [*lines, ""]


def _accuracies(title: str, part: str, measured: list[Measured]) -> list[str]:
    lines = [f"## {title}", "", f"| setting | seeds | {_LEARNT} | paper |", f"|---|{'--:|' * 7}"]
    for one in measured:
        name, paper = one.experiment.name, PAPER[part].get(one.experiment.name, "-")
        lines.append(f"| {name} | {len(one.setting.outcomes)} | {_learnt(one)} | {paper} |")
    means = {one.experiment.name: fmean(one.setting.unaveraged.best()) for one in measured}
    losses = [
        f"{(means[a] - means[b]) * 100:.2f} ({a} against {b})"
        for a, b in zip([*PAPER[part]][0:4:2], [*PAPER[part]][1:4:2], strict=True)
        if a in means and b in means
    ]
    return [*lines, "", f"Loss of the best, in points: {'; '.join(losses) or '-'}.", ""]
