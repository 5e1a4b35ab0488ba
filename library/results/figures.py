"""Figures of panels side by side, as PNG and SVG."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
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
