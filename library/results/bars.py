"""Figures of bars: a panel for each subject, a group for each case, a bar for each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeflock.results.figures import COLOURS, GRID, label_axes, panels


@dataclass(frozen=True, slots=True)
class Bars:
    """One pair of axes of a figure."""

    title: str
    label: str
    """The label of the heights."""
    groups: Sequence[str]
    heights: Mapping[str, Sequence[float]]
    """Method -> the height of its bar in each group, 0 if it was not measured."""


def draw_bars(shown: Sequence[Bars], path: Path, caption: str, *, log: bool = False) -> None:
    """Draw the panels side by side, as `path`.png and .svg."""
    with panels(len(shown), path, caption, 5.0, 4.0) as grid:
        for axes, panel in zip(grid, shown, strict=True):
            width = 0.8 / max(1, len(panel.heights))
            for number, (method, heights) in enumerate(panel.heights.items()):
                offset = width * (number - (len(panel.heights) - 1) / 2)
                places = [at + offset for at in range(len(panel.groups))]
                axes.bar(places, heights, 0.9 * width, color=COLOURS[number % len(COLOURS)], label=method)
            axes.set_xticks(range(len(panel.groups)), list(panel.groups))
            axes.set_yscale("log" if log else "linear")
            label_axes(axes, panel.title, panel.label)
            axes.grid(axis="y", color=GRID, linewidth=0.6)
            axes.set_axisbelow(True)
            axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)
