"""Figures of panels side by side, as PNG and SVG; and panels of bars."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#B84A00", "#009E73", "#CC79A7", "#555555", "#E69F00")
"""Colours after Okabe and Ito, distinct for every kind of colour vision."""
GRID = "#DDDDDD"


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, row by row. `width` and `height` are in inches."""
    # Keep the text of an SVG as text. Two runs of equal figures give equal files.
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "edgeflock", "font.size": 9})
    figure, grid = pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False)
    return figure, list(grid.flat)


@contextmanager
def panels(number: int, path: Path, caption: str, width: float, height: float) -> Iterator[list[Axes]]:
    """Yield axes to draw on, each of this size. Then write them as `path`.png and .svg, with the caption."""
    figure, axes = new_figure(1, number, width * number, height)
    yield axes
    lines = textwrap.wrap(caption, 95 * number)
    figure.text(0.01, 0.012, "\n".join(lines), color="#555555", fontsize=7)
    figure.tight_layout(rect=(0, 0.02 + 0.03 * len(lines), 1, 1), w_pad=2)
    figure.savefig(path.with_suffix(".png"), dpi=150)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)


def label_axes(axes: Axes, title: str, left: str, below: str = "") -> None:
    """Give a panel its title, its labels and its frame."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_ylabel(left)
    axes.set_xlabel(below)
    axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True, slots=True)
class Bars:
    """One pair of axes: a group for each case, a bar for each method."""

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
