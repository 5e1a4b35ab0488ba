"""The curves of the overview as data: what is drawn against what. Screen and `edgeflock plot` share them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from edgeflock.shared.protocol.frames import BINS, RETURN
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers

Against = Literal["time", "updates", "bytes"]
Rate = Literal["updates_per_s", "ingress_rate", "egress_rate"]
Reduction = Literal["reduction", "reduction_both_ways"]
AGAINST: tuple[Against, ...] = ("time", "updates", "bytes")


@dataclass(frozen=True, slots=True)
class PlotCurve:
    """Points in order of x."""

    x: list[float]
    y: list[float]


FORMS: dict[Against, Callable[[float], str]] = {
    "time": numbers.span,
    "updates": numbers.short,
    "bytes": numbers.short_size,
}


def accuracy(state: MonitorState, against: Against) -> PlotCurve:
    """Of the evaluations, in percent."""
    known = [(e, e.accuracy) for e in state.evaluations if e.accuracy is not None]
    start = began(state)
    return PlotCurve(
        [_place(against, e.time - start, e.version, e.ingress + e.egress) for e, _ in known],
        [value * 100 for _, value in known],
    )


def returns(state: MonitorState, against: Against) -> PlotCurve:
    """Of the evaluations of a policy that acts; empty of any other model."""
    known = [(e, value) for e in state.evaluations if (value := e.metrics.get(RETURN)) is not None]
    start = began(state)
    return PlotCurve(
        [_place(against, e.time - start, e.version, e.ingress + e.egress) for e, _ in known],
        [value for _, value in known],
    )


def test_loss(state: MonitorState, against: Against) -> PlotCurve:
    """Of the evaluations."""
    known = [(e, e.loss) for e in state.evaluations if e.loss is not None]
    start = began(state)
    return PlotCurve(
        [_place(against, e.time - start, e.version, e.ingress + e.egress) for e, _ in known],
        [loss for _, loss in known],
    )


def training_loss(state: MonitorState, against: Against) -> PlotCurve:
    """As the devices tell, averaged over recent updates; since somebody watches."""
    known = [(m, m.loss) for m in state.trend if m.loss is not None]
    start = began(state)
    return PlotCurve(
        [_place(against, m.time - start, m.version, m.ingress + m.egress) for m, _ in known],
        [loss for _, loss in known],
    )


def reduction(state: MonitorState, against: Against, field: Reduction = "reduction") -> PlotCurve:
    """How many times less than dense went up, or both ways, since somebody watches."""
    known = [(m, value) for m in state.trend if (value := getattr(m, field)) is not None]
    start = began(state)
    return PlotCurve(
        [_place(against, m.time - start, m.version, m.ingress + m.egress) for m, _ in known],
        [value for _, value in known],
    )


def stayed(accuracy: PlotCurve) -> float:
    """The mean of the last five points, or of all if they are fewer: a collapse shows, as it does not in the
    best. There must be one.
    """
    return fmean(accuracy.y[-5:])


def without_outliers(values: Sequence[float]) -> list[float]:
    """The values without the first few wild ones, which would flatten all others."""
    if len(values) < 20:
        return list(values)
    bound = 3 * sorted(values)[int(len(values) * 0.9)]
    return [value for value in values if value <= bound]


def recent(state: MonitorState, field: Rate, window: float) -> PlotCurve:
    """A rate over the last `window` seconds; x is in seconds before now, the last of them 0."""
    known = [m for m in state.trend if m.time >= state.time - window]
    return PlotCurve([m.time - state.time for m in known], [getattr(m, field) for m in known])


def began(state: MonitorState) -> float:
    """The time that is 0 on the axis: of the first evaluation or of the first frame."""
    return min(
        [*(evaluation.time for evaluation in state.evaluations[:1]), *(m.time for m in state.trend[:1])],
        default=state.time,
    )


def bin_labels() -> Sequence[str]:
    """The least staleness of each bin."""
    return ["0", *(f"{2**power}" if power < 10 else f"{2 ** (power - 10)}k" for power in range(BINS - 1))]


def _place(against: Against, seconds: float, version: int, traffic: int) -> float:
    """On the axis; `traffic` is what was received and sent."""
    return float({"time": seconds, "updates": version, "bytes": traffic}[against])
