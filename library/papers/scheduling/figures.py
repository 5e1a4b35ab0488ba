"""Figures of average completion times."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from edgeflock.papers.scheduling.experiments import SCHEMES, Averages
from edgeflock.results.figures import COLOURS, GRID, label_axes, panels

_MARKERS = dict(zip(SCHEMES, ("v", "^", "", "s", "o", "x"), strict=True))


@dataclass(frozen=True, slots=True)
class CompletionPanel:
    """Mean completion times against r or k."""

    title: str
    label: str
    averages: Averages


def draw(shown: Sequence[CompletionPanel], path: Path, caption: str) -> None:
    """The panels side by side, as `path`.png and .svg."""
    with panels(len(shown), path, caption, 4.6, 4.2) as grid:
        for axes, panel in zip(grid, shown, strict=True):
            _draw_panel(axes, panel)


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
    label_axes(axes, panel.title, "average completion time", panel.label)
    axes.set_xticks(range(1, len(next(iter(panel.averages.values()))) + 1))
    axes.grid(color=GRID, linewidth=0.6, which="both")
    axes.legend(frameon=False, fontsize=8)
