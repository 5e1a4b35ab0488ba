"""The figure: accuracy against gradients for the CNN of TensorFlow's tutorial, 10 devices, even data."""

from pathlib import Path

from benchmarks.learning.arms import AVERAGE, CENTRAL, COHORT, PRODUCT
from benchmarks.learning.cells import BASE, Results
from benchmarks.learning.lines import Line, lines_of
from edgeflock.results.figures import Panel, draw
from edgeflock.results.outcomes import Outcome, Setting

RIVALS = 3
"""That are drawn: the best ones."""


def draw_cifar(results: Results, path: Path) -> bool:
    """Leave `path`.png and .svg, of the product, one machine and the best rivals; whether there was any."""
    lines = chosen(results)
    if lines:
        settings = [_setting(line) for line in lines]
        title = "CIFAR-10, the CNN of TensorFlow's tutorial"
        panel = Panel(title, "updates", "gradients, on all devices together", settings)
        caption = (
            "10 devices, even data, batches of 32. Lines are means over the seeds, bands the lowest to the "
        )
        draw([panel], path, caption + "highest. SGD and Adam have all data on one machine.")
    return bool(lines)


def chosen(results: Results) -> list[Line]:
    """The lines that are drawn."""
    alone = list(lines_of(results, "cifar", 1, "even"))
    fleet = list(lines_of(results, "cifar", *BASE))
    product = [line for line in fleet if line.family in (PRODUCT, COHORT)]
    rivals = [line for line in fleet if not line.family.startswith(PRODUCT) and line.family not in CENTRAL]
    return [*product, *alone, *sorted(rivals, key=lambda line: -line.mean_of_last)[:RIVALS]]


def _setting(line: Line) -> Setting:
    ours = {PRODUCT: "Edgeflock", COHORT: "Edgeflock, three devices at a time"}
    label = ours.get(line.family, line.family)
    if f" {AVERAGE}=" in line.arm:
        label += ", averaged"
    return Setting(label, [outcome(run["curve"]) for run in line.runs])


def outcome(curve: list[dict[str, float]]) -> Outcome:
    """Of a curve by gradients, which stand where fleets' curves have updates."""
    return Outcome([{**row, "updates": row["gradients"]} for row in curve], {})
