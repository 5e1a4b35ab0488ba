"""Charts in braille, pure functions from numbers to lines. Each cell has two by four dots."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.tui.text.lines import Ink, Line, fit

_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.int64)
"""The dot at (row, column) of a cell, after Unicode 2800."""

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MINUTES = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_TIME_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between the marks of a time axis."""
_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True)
class Series:
    """A curve with ascending x."""

    x: Sequence[float]
    y: Sequence[float]
    ink: Ink


@dataclass(frozen=True, slots=True)
class Axis:
    """The range of an axis and the format of its numbers."""

    low: float
    high: float
    form: Callable[[float], str]


def ceiling(value: float) -> float:
    """Return the next round number. A growing curve then rescales, and repaints, only rarely."""
    if value <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(value))
    return next(step for step in _STEPS if value <= step * magnitude * (1 + 1e-9)) * magnitude


def duration_ceiling(seconds: float) -> float:
    """Return the next round duration."""
    for unit, steps in (
        (1, (10, 20, 30, 40)),
        (60, _MINUTES),
        (3600, (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 36)),
    ):
        for step in steps:
            if seconds <= step * unit:
                return float(step * unit)
    return ceiling(seconds / 86400) * 86400


def round_times(low: float, high: float) -> list[float]:
    """Return the marks of a time axis from `low` to `high`: at most seven, round and equidistant."""
    days = max(1.0, ceiling((high - low) / 6 / 86400))
    step = next((step for step in _TIME_STEPS if (high - low) / step <= 6), days * 86400)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def fit_axis(
    values: Sequence[float], form: Callable[[float], str], *, zero: bool, top: float | None = None
) -> Axis:
    """Return an axis of round numbers for `values`. It starts at 0 if `zero`, and ends at most at `top`."""
    if not values:
        return Axis(0.0, 1.0 if top is None else top, form)
    low, high = min(values), max(values)
    if zero and low >= 0:
        return Axis(0.0, ceiling(high), form)
    width = ceiling(max(high - low, abs(high) * 1e-3, 1e-9))
    axis = _round_axis(low, high, width / 4, form, top)
    while len({form(value) for value in _marks(axis)}) < 3 and width < 16 * max(abs(low), abs(high)):
        # Labels with equal text do not help. Widen the axis until they differ.
        width = ceiling(1.5 * width)
        axis = _round_axis(low, high, width / 4, form, top)
    return axis


def _round_axis(
    low: float, high: float, step: float, form: Callable[[float], str], top: float | None
) -> Axis:
    """Return the axis between multiples of `step` that contain both values."""
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    if top is not None:
        high = min(high, top)
    return Axis(low, high if high > low else low + step, form)


def _marks(axis: Axis) -> tuple[float, float, float]:
    """Return the values that may have a label."""
    return axis.low, (axis.low + axis.high) / 2, axis.high


def label_width(y: Axis) -> int:
    """Return the width of an axis's labels, in cells."""
    return max(len(y.form(value)) for value in _marks(y))


def chart(
    series: Sequence[Series], x: Axis, y: Axis, width: int, height: int, *, gutter: int = 0
) -> list[Line]:
    """Draw curves with axes: `height` lines of `width` cells, the last one with x's numbers.

    `gutter` is the minimum width of y's numbers. Charts below each other use the same, to align x.
    """
    rows = height - 1
    if rows < 1:
        return [[] for _ in range(height)]
    ticks = {rows - 1: y.low, 0: y.high}
    if rows >= 5 and rows % 2:
        ticks[rows // 2] = (y.low + y.high) / 2
    gutter = max(gutter, *(len(y.form(value)) for value in ticks.values()))
    cells, owners = _plot(series, x, y, width - gutter - 1, rows)
    inks: list[Ink] = ["text", *(one.ink for one in series)]
    lines: list[Line] = []
    for row in range(rows):
        label = fit(y.form(ticks[row]) if row in ticks else "", gutter, "right")
        lines.append(
            [(label, "dim"), ("┤" if row in ticks else "│", "rule"), *_runs(cells[row], owners[row], inks)]
        )
    lines.append(_x_labels(x, gutter + 1, width))
    return lines


def _x_labels(x: Axis, indent: int, width: int) -> Line:
    low, high = x.form(x.low), x.form(x.high)
    space = width - indent
    middle = x.form((x.low + x.high) / 2)
    if space < len(low) + len(high) + 1:
        return [(fit("", width), "dim")]
    if space < len(low) + len(middle) + len(high) + 6:
        return [(" " * indent + low + high.rjust(space - len(low)), "dim")]
    left = (space - len(middle)) // 2 - len(low)
    text = low + " " * left + middle
    return [(" " * indent + text + high.rjust(space - len(text)), "dim")]


def _plot(
    series: Sequence[Series], x: Axis, y: Axis, width: int, height: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (dots, series) [height, width]: braille bits, and the last series in each cell, from 1 on."""
    cells = np.zeros((height, max(1, width)), np.int64)
    owners = np.zeros_like(cells)
    columns, rows = cells.shape[1] * 2, height * 4
    for number, one in enumerate(series, 1):
        if not len(one.x):
            continue
        places = (np.asarray(one.x, float) - x.low) / ((x.high - x.low) or 1.0) * (columns - 1)
        levels = (y.high - np.asarray(one.y, float)) / ((y.high - y.low) or 1.0) * (rows - 1)
        first = max(0, math.ceil(places[0] - 1e-9))
        last = min(columns - 1, math.floor(places[-1] + 1e-9))
        dots_x = np.arange(first, last + 1)
        if not len(dots_x):  # the whole series is within one column
            dots_x = np.clip(np.round(places[-1:]).astype(np.int64), 0, columns - 1)
        level = np.clip(np.round(np.interp(dots_x, places, levels)), 0, rows - 1).astype(np.int64)
        previous = np.concatenate([level[:1], level[:-1]])
        for column, top, bottom in zip(
            dots_x, np.minimum(level, previous), np.maximum(level, previous), strict=True
        ):
            dots = np.arange(top, bottom + 1)  # a steep part is a column of dots
            np.bitwise_or.at(cells, (dots // 4, column // 2), _BITS[dots % 4, column % 2])
            owners[dots // 4, column // 2] = number
    return cells, owners


def _runs(bits: NDArray[np.int64], owners: NDArray[np.int64], inks: Sequence[Ink]) -> Line:
    """Return cells as spans of one ink each. Empty cells are spaces, not empty braille."""
    line: Line = []
    for bit, owner in zip(bits.tolist(), owners.tolist(), strict=True):
        char, ink = chr(0x2800 + bit) if bit else " ", inks[owner]
        if line and (line[-1][1] == ink or not bit):
            line[-1] = (line[-1][0] + char, line[-1][1])
        else:
            line.append((char, ink))
    return line


def bars(labels: Sequence[str], values: Sequence[float], ink: Ink, width: int, height: int) -> list[Line]:
    """Draw a histogram of vertical bars with labels below. The highest bar fills the height."""
    rows = height - 1
    if rows < 1 or not values:
        return [[] for _ in range(height)]
    each = max(1, width // len(values))
    bar = max(1, each - 1)
    highest = max(max(values), 1e-300)
    eighths = [math.ceil(value / highest * rows * 8) if value else 0 for value in values]
    lines: list[Line] = []
    for row in range(rows):
        floor = (rows - 1 - row) * 8
        text = "".join(_BLOCKS[min(8, max(0, level - floor))] * bar + " " * (each - bar) for level in eighths)
        lines.append([(text, ink)])
    every = next((n for n in (1, 2, 3) if max(map(len, labels)) < n * each), 4)
    footer = "".join(fit(label, every * each) for label in labels[::every])
    lines.append([(fit(footer, width), "dim")])
    return lines


def meter(fraction: float, width: int) -> tuple[str, str]:
    """Return (full part, rest) of a bar of `width` cells that is full to `fraction`."""
    full = round(min(1.0, max(0.0, fraction)) * width)
    return "━" * full, "─" * (width - full)
