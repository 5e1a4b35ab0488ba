"""Figures of bars: a panel for each subject, a group for each case, a bar for each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib import pyplot

from edgeflock.results.curves import COLOURS


@dataclass(frozen=True, slots=True)
class Bars:
    """One pair of axes of a figure."""

    title: str
    label: str
    """The label of the heights."""
    groups: Sequence[str]
    heights: Mapping[str, Sequence[float]]
    """Method -> the height of its bar in each group, 0 if it was not measured."""


def draw_bars(panels: Sequence[Bars], path: Path, caption: str, *, log: bool = False) -> None:
    """Draw the panels side by side, as `path`.png and .svg."""
    # Keep the text of an SVG as text. Two runs of equal figures give equal files.
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "edgeflock", "font.size": 9})
    figure, grid = pyplot.subplots(1, len(panels), figsize=(5.0 * len(panels), 4.0), squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        width = 0.8 / max(1, len(panel.heights))
        for number, (method, heights) in enumerate(panel.heights.items()):
            offset = width * (number - (len(panel.heights) - 1) / 2)
            places = [at + offset for at in range(len(panel.groups))]
            axes.bar(places, heights, 0.9 * width, color=COLOURS[number % len(COLOURS)], label=method)
        axes.set_xticks(range(len(panel.groups)), list(panel.groups))
        axes.set_yscale("log" if log else "linear")
        axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
        axes.set_ylabel(panel.label)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)
    figure.text(0.01, 0.012, caption, color="#555555", fontsize=7)
    figure.tight_layout(rect=(0, 0.04, 1, 1), w_pad=2)
    figure.savefig(path.with_suffix(".png"), dpi=150)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)
