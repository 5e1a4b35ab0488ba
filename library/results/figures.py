"""Figures of panels side by side, as PNG and SVG; and panels of bars."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from edgeflock.results.outcomes import Setting
from edgeflock.tui.text.numbers import short, short_size, span

COLOURS = ("#0072B2", "#B84A00", "#009E73", "#CC79A7", "#555555", "#E69F00", "#56B4E9")
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
    lines = textwrap.wrap(caption, 88 * number)
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


_LABELS = {"accuracy": "test accuracy (%)", "loss": "test loss", "return": "mean return of episodes"}
_STYLES = ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1)))


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes of a figure: accuracy against `key`."""

    title: str
    key: str
    label: str
    settings: Sequence[Setting]
    floor: float | None = None
    """The lowest accuracy shown. None means the lowest value."""
    log: bool = False


def draw(shown: Sequence[Panel], path: Path, caption: str) -> None:
    """Draw the panels side by side, as `path`.png and .svg: means as lines, minimum to maximum as bands."""
    with panels(len(shown), path, caption, 5.0, 4.3) as grid:
        for axes, panel in zip(grid, shown, strict=True):
            _draw_panel(axes, panel)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for number, setting in enumerate(panel.settings):
        series = setting.series(panel.key)
        if not series:
            continue
        x = np.array([at for at, _ in series])
        y = np.array([measures for _, measures in series]) * (100 if setting.measure == "accuracy" else 1)
        colour = COLOURS[number % len(COLOURS)]
        style = _STYLES[number % len(_STYLES)]
        marker = "o" if len(series) < 3 else None  # too short for a line
        axes.plot(
            x, y.mean(1), color=colour, linestyle=style, marker=marker, linewidth=1.6, label=setting.label
        )
        axes.fill_between(x, y.min(1), y.max(1), color=colour, alpha=0.18, linewidth=0)
    if panel.floor is not None:
        axes.set_ylim(panel.floor * 100, 100)
    if panel.log:
        axes.set_xscale("log")
    label_axes(axes, panel.title, _LABELS[panel.settings[0].measure], panel.label)
    by_key = {"ingress": short_size, "traffic": short_size, "updates": short}
    formatter: Callable[[float], str] = by_key.get(panel.key, span)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: formatter(value)))
    axes.grid(color=GRID, linewidth=0.6)
    widest = max((len(setting.label) for setting in panel.settings), default=0)
    columns = 2 if widest > 20 else 3
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=columns)
