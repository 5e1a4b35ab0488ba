"""The results of a fleet's runs, one for each seed, as Markdown and as figures."""

from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.results.outcomes import Outcome, Setting
from edgeflock.shared.numbers import CELLS, loss, percent, percents, size

_ACCURACIES = (0.90, 0.95, 0.97, 0.98)


def draw_accuracy(name: str, file: FleetFile, outcomes: list[Outcome], directory: Path) -> None:
    """Write accuracy.png and .svg to `directory`: against updates, traffic and time.

    Raises ImportError without matplotlib.
    """
    from edgeflock.results.figures import Panel, draw

    setting = [Setting(name, outcomes)]
    panels = [
        Panel("Updates", "updates", "updates", setting),
        Panel("Traffic", "traffic", "received and sent by the server", setting),
        Panel("Time", "seconds", "virtual time", setting),
    ]
    caption = f"{file.fleet.devices} emulated devices, seeds {', '.join(map(str, file.fleet.seeds))}"
    draw(panels, directory / "accuracy", caption)


def report(name: str, file: FleetFile, outcomes: list[Outcome], *, figures: bool = True) -> str:
    """Return the report in Markdown, with the figures of draw_accuracy if `figures`."""
    fleet, coordination, compression = file.fleet, file.coordination, file.compression
    setting = Setting(name, outcomes)
    lines = [
        f"# Fleet {name}",
        "",
        f"{fleet.devices:,} emulated devices train {file.model.module} on `{fleet.data}`, "
        f"{file.local.batch} samples a step. Rule {coordination.rule}, learning rate "
        f"{coordination.learning_rate:g}, select {compression.select:g}, values {compression.values}. "
        f"Time is virtual. {CELLS}: WebSocket messages, framed.",
        "",
        _headline(setting),
        "",
        "| seed | ended | updates | time | last accuracy | last five | best | received | sent | both ways |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for outcome in outcomes:
        last = outcome.rows[-1]
        lines.append(
            f"| {outcome.end['seed']} | {outcome.end['ended']} | {outcome.end['updates']:,} "
            f"| {_duration(last['seconds'])} | {percent(last['accuracy'])} "
            f"| {percent(outcome.last_five or None)} | {percent(outcome.best or None)} "
            f"| {' | '.join(outcome.traffic(last).cells())} |"
        )
    reached = ["", "| accuracy | updates | time | received | sent | both ways |", "|--:|--:|--:|--:|--:|--:|"]
    for accuracy in _ACCURACIES:
        updates, seconds = (setting.costs_to_reach(accuracy, key) for key in ("updates", "seconds"))
        traffic = setting.traffic_to_reach(accuracy)
        if updates and seconds and traffic:
            reached.append(
                f"| {accuracy:.0%} | {fmean(updates):,.0f} | {_duration(fmean(seconds))} "
                f"| {' | '.join(traffic.cells())} |"
            )
    lines += [
        *(reached if reached[3:] else ["", f"Not every run reached {_ACCURACIES[0]:.0%}."]),
        "",
        "| class | devices | crashed | updates | refused | mean staleness | received | sent | both ways |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in file.classes:
        tallies = [outcome.end["classes"][kind] for outcome in outcomes]
        updates_made, staleness = sum(t["updates"] for t in tallies), sum(t["staleness"] for t in tallies)
        received, sent = (fmean(t[key] for t in tallies) for key in ("ingress", "egress"))
        lines.append(
            f"| {kind} | {tallies[0]['devices']} | {fmean(t['crashed'] for t in tallies):g} "
            f"| {updates_made / len(tallies):,.0f} | {fmean(t['refused'] for t in tallies):,.0f} "
            f"| {staleness / max(1, updates_made):,.0f} "
            f"| {size(received)} | {size(sent)} | {size(received + sent)} |"
        )
    lines += [
        "",
        "Means over the seeds." if len(outcomes) > 1 else "One seed.",
        "",
        *(["![accuracy](accuracy.png)", ""] if figures else []),
    ]
    return "\n".join(lines)


def outcome_summary(outcome: Outcome) -> dict[str, Any]:
    """Return a run's end, its learning results and its costs, as plain JSON types."""
    traffic = outcome.traffic(outcome.rows[-1])
    is_learned = outcome.rows[-1]["accuracy"] is not None
    return outcome.end | {
        "accuracy": outcome.last if is_learned else None,
        "last_five_accuracy": outcome.last_five if is_learned else None,
        "best_accuracy": outcome.best if is_learned else None,
        "ingress": traffic.ingress,
        "egress": traffic.egress,
        "dense_bytes": traffic.dense,
        "reduction": traffic.reduction,
        "reduction_both_ways": traffic.reduction_both_ways,
    }


def _headline(setting: Setting) -> str:
    losses = [loss(outcome.rows[-1]["loss"], 4) for outcome in setting.outcomes]
    if setting.measure == "accuracy":
        return (
            f"Accuracy of the last evaluation: {percents(setting.last())}; mean of the last five: "
            f"{percents(setting.last_five())}; best: {percents(setting.best())}."
        )
    return f"Last loss: {', '.join(losses)}."


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
