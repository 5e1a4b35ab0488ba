"""Figures of average completion times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from edgeflock.papers.scheduling.experiments import SCHEMES, Averages
from edgeflock.results.curves import COLOURS

_MARKERS = dict(zip(SCHEMES, ("v", "^", "", "s", "o", "x"), strict=True))


@dataclass(frozen=True, slots=True)
class CompletionPanel:
    """Mean completion times against r or k."""

    title: str
    label: str
    averages: Averages


def draw(panels: Sequence[CompletionPanel], path: Path, caption: str) -> None:
    """The panels side by side, as `path`.png and .svg."""
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "edgeflock", "font.size": 9})
    figure, grid = pyplot.subplots(1, len(panels), figsize=(4.6 * len(panels), 4.2), squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        _draw_panel(axes, panel)
    figure.text(0.01, 0.012, caption, color="#555555", fontsize=7)
    figure.tight_layout(rect=(0, 0.04, 1, 1), w_pad=2)
    figure.savefig(path.with_suffix(".png"), dpi=150)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)


def _draw_panel(axes: Axes, panel: CompletionPanel) -> None:
    for scheme, means in panel.averages.items():
        points = [(at, mean) for at, mean in enumerate(means, 1) if mean is not None]
        colour = COLOURS[SCHEMES.index(scheme)]
        if len(points) == 1:  # RA has r = n only: a line to compare the others with
            axes.axhline(points[0][1], color=colour, linestyle="--", linewidth=1.2, label=scheme)
            continue
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, marker=_MARKERS[scheme], markersize=5, linewidth=1.4, label=scheme)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel(panel.label)
    axes.set_ylabel("average completion time")
    axes.set_xticks(range(1, len(next(iter(panel.averages.values()))) + 1))
    axes.grid(color="#DDDDDD", linewidth=0.6, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
