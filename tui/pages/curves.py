"""The curves of the overview as data. The screen and `edgeflock plot` share them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from edgeflock.shared.protocol.frames import BINS, RETURN
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers

XAxis = Literal["time", "updates", "bytes"]
Rate = Literal["updates_per_s", "ingress_rate", "egress_rate"]
Reduction = Literal["reduction", "reduction_both_ways"]
X_AXES: tuple[XAxis, ...] = ("time", "updates", "bytes")


@dataclass(frozen=True, slots=True)
class PlotCurve:
    """Points in order of x."""

    x: list[float]
    y: list[float]


FORMS: dict[XAxis, Callable[[float], str]] = {
    "time": numbers.span,
    "updates": numbers.short,
    "bytes": numbers.short_size,
}


def accuracy(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    """Return the accuracy of the evaluations, in percent."""
    known = [(e, e.accuracy) for e in state.evaluations if e.accuracy is not None]
    start = start_time(state)
    return PlotCurve(
        [_x_value(x_axis, e.time - start, e.version, e.ingress + e.egress) for e, _ in known],
        [value * 100 for _, value in known],
    )


def returns(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    """Return the returns of a policy's evaluations. The curve is empty for other models."""
    known = [(e, value) for e in state.evaluations if (value := e.metrics.get(RETURN)) is not None]
    start = start_time(state)
    return PlotCurve(
        [_x_value(x_axis, e.time - start, e.version, e.ingress + e.egress) for e, _ in known],
        [value for _, value in known],
    )


def test_loss(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    """Return the loss of the evaluations."""
    known = [(e, e.loss) for e in state.evaluations if e.loss is not None]
    start = start_time(state)
    return PlotCurve(
        [_x_value(x_axis, e.time - start, e.version, e.ingress + e.egress) for e, _ in known],
        [loss for _, loss in known],
    )


def training_loss(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    """Return the devices' training loss, averaged over recent updates, for the observed time."""
    known = [(m, m.loss) for m in state.trend if m.loss is not None]
    start = start_time(state)
    return PlotCurve(
        [_x_value(x_axis, m.time - start, m.version, m.ingress + m.egress) for m, _ in known],
        [loss for _, loss in known],
    )


def reduction(state: MonitorState, x_axis: XAxis, field: Reduction = "reduction") -> PlotCurve:
    """Return the uplink reduction against dense float32, or that of both ways, for the observed time."""
    known = [(m, value) for m in state.trend if (value := getattr(m, field)) is not None]
    start = start_time(state)
    return PlotCurve(
        [_x_value(x_axis, m.time - start, m.version, m.ingress + m.egress) for m, _ in known],
        [value for _, value in known],
    )


def final_mean(accuracy: PlotCurve) -> float:
    """Return the mean of the last five points, or of all if there are fewer.

    It shows a collapse, which the best value hides. The curve must have a point.
    """
    return fmean(accuracy.y[-5:])


def drop_outliers(values: Sequence[float]) -> list[float]:
    """Return the values without outliers, which would flatten the rest of a curve."""
    if len(values) < 20:
        return list(values)
    bound = 3 * sorted(values)[int(len(values) * 0.9)]
    return [value for value in values if value <= bound]


def recent_rate(state: MonitorState, field: Rate, window: float) -> PlotCurve:
    """Return a rate over the last `window` seconds. x is seconds before now, and ends at 0 or below."""
    known = [m for m in state.trend if m.time >= state.time - window]
    return PlotCurve([m.time - state.time for m in known], [getattr(m, field) for m in known])


def start_time(state: MonitorState) -> float:
    """Return the time of 0 on the axis: the first evaluation or the first frame."""
    return min(
        [*(evaluation.time for evaluation in state.evaluations[:1]), *(m.time for m in state.trend[:1])],
        default=state.time,
    )


def bin_labels() -> Sequence[str]:
    """Return the lowest staleness of each bin."""
    return ["0", *(f"{2**power}" if power < 10 else f"{2 ** (power - 10)}k" for power in range(BINS - 1))]


def _x_value(x_axis: XAxis, seconds: float, version: int, traffic: int) -> float:
    """Return the place on the axis. `traffic` is the sum of ingress and egress."""
    return float({"time": seconds, "updates": version, "bytes": traffic}[x_axis])
