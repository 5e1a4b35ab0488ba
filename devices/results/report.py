"""What a fleet's runs came to, a seed each, as Markdown and as figures."""

from datetime import timedelta
from pathlib import Path
from statistics import fmean

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.numbers import loss, percent, percents, size
from edgeflock.devices.results.curves import Panel, draw
from edgeflock.devices.results.outcomes import Outcome, Setting

_ACCURACIES = (0.90, 0.95, 0.97, 0.98)


def draw_accuracy(name: str, file: FleetFile, outcomes: list[Outcome], directory: Path) -> None:
    """Leave accuracy.png and .svg in `directory`: against updates, traffic and time."""
    setting = [Setting(name, outcomes)]
    panels = [
        Panel("Updates", "updates", "updates", setting),
        Panel("Traffic", "ingress", "received by the server", setting),
        Panel("Time", "seconds", "virtual time", setting),
    ]
    caption = f"{file.fleet.devices} emulated devices, seeds {', '.join(map(str, file.fleet.seeds))}"
    draw(panels, directory / "accuracy", caption)


def report(name: str, file: FleetFile, outcomes: list[Outcome]) -> str:
    """Markdown."""
    fleet, coordination, compression = file.fleet, file.coordination, file.compression
    setting = Setting(name, outcomes)
    lines = [
        f"# Fleet {name}",
        "",
        f"{fleet.devices:,} emulated devices train {file.model.module} on `{fleet.data}`, "
        f"{file.run.batch} samples a step. Rule {coordination.rule}, learning rate "
        f"{coordination.learning_rate:g}, select {compression.select:g}, values {compression.values}. "
        "Time is virtual; traffic is that of WebSocket messages, framed.",
        "",
        _headline(setting),
        "",
        "| seed | ended | updates | time | accuracy | best | received | sent |",
        "|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for outcome in outcomes:
        last = outcome.rows[-1]
        lines.append(
            f"| {outcome.end['seed']} | {outcome.end['ended']} | {outcome.end['updates']:,} "
            f"| {_duration(last['seconds'])} | {percent(last['accuracy'])} "
            f"| {percent(outcome.best or None)} | {size(last['ingress'])} | {size(last['egress'])} |"
        )
    lines += ["", "| accuracy | updates | time | received |", "|--:|--:|--:|--:|"]
    for accuracy in _ACCURACIES:
        updates, seconds, ingress = (
            setting.reaching(accuracy, key) for key in ("updates", "seconds", "ingress")
        )
        if updates and seconds and ingress:
            lines.append(
                f"| {accuracy:.0%} | {fmean(updates):,.0f} | {_duration(fmean(seconds))} "
                f"| {size(round(fmean(ingress)))} |"
            )
    lines += [
        "",
        "| class | devices | crashed | updates | refused | mean staleness | received |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for kind in file.classes:
        tallies = [outcome.end["classes"][kind] for outcome in outcomes]
        updates_of, behind = sum(t["updates"] for t in tallies), sum(t["staleness"] for t in tallies)
        lines.append(
            f"| {kind} | {tallies[0]['devices']} | {fmean(t['crashed'] for t in tallies):g} "
            f"| {updates_of / len(tallies):,.0f} | {fmean(t['refused'] for t in tallies):,.0f} "
            f"| {behind / max(1, updates_of):,.0f} "
            f"| {size(round(fmean(t['ingress'] for t in tallies)))} |"
        )
    lines += [
        "",
        "Means over the seeds." if len(outcomes) > 1 else "One seed.",
        "",
        "![accuracy](accuracy.png)",
        "",
    ]
    return "\n".join(lines)


def _headline(setting: Setting) -> str:
    losses = [loss(outcome.rows[-1]["loss"], 4) for outcome in setting.outcomes]
    if setting.measure == "accuracy":
        return f"Best accuracy: {percents(setting.best())}."
    return f"Last loss: {', '.join(losses)}."


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
