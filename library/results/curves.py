"""Figures of learning curves: means as lines, minimum to maximum over the seeds as bands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from edgeflock.results.figures import COLOURS, GRID, label_axes, panels
from edgeflock.results.outcomes import Setting

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
    formatter: Callable[[Any, Any], str] = {"ingress": _bytes, "traffic": _bytes, "updates": _count}.get(
        panel.key, _seconds
    )
    axes.xaxis.set_major_formatter(FuncFormatter(formatter))
    axes.grid(color=GRID, linewidth=0.6)
    widest = max((len(setting.label) for setting in panel.settings), default=0)
    columns = 2 if widest > 20 else 3
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=columns)


def _count(value: float, _: object = None) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _seconds(value: float, _: object = None) -> str:
    return f"{value / 3600:g} h" if value >= 3600 else f"{value:g} s"


def _bytes(value: float, _: object = None) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"
