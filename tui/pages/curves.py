"""The curves of the overview as data. The screen and `edgeflock plot` share them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from edgeflock.shared.protocol.frames import BINS, RETURN, Evaluation
from edgeflock.tui.sources.state import Moment, MonitorState
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
    curve = _curve(state, x_axis, state.evaluations, [one.accuracy for one in state.evaluations])
    return PlotCurve(curve.x, [value * 100 for value in curve.y])


def returns(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    """Return the returns of a policy's evaluations. The curve is empty for other models."""
    return _curve(state, x_axis, state.evaluations, [one.metrics.get(RETURN) for one in state.evaluations])


def test_loss(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    return _curve(state, x_axis, state.evaluations, [one.loss for one in state.evaluations])


def training_loss(state: MonitorState, x_axis: XAxis) -> PlotCurve:
    """Return the devices' training loss, averaged over recent updates, for the observed time."""
    return _curve(state, x_axis, state.trend, [moment.loss for moment in state.trend])


def reduction(state: MonitorState, x_axis: XAxis, field: Reduction = "reduction") -> PlotCurve:
    """Return the uplink reduction against dense float32, or that of both ways, for the observed time."""
    return _curve(state, x_axis, state.trend, [getattr(moment, field) for moment in state.trend])


def _curve(
    state: MonitorState, x_axis: XAxis, points: Sequence[Evaluation | Moment], values: Sequence[float | None]
) -> PlotCurve:
    """Return the known values, at their places on the axis. Bytes count both ways."""
    start, x, y = start_time(state), [], []
    for point, value in zip(points, values, strict=True):
        if value is not None:
            traffic = point.ingress + point.egress
            place = {"time": point.time - start, "updates": point.version, "bytes": traffic}[x_axis]
            x.append(float(place))
            y.append(value)
    return PlotCurve(x, y)


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
