"""What the monitor knows of a run: a pure reducer (state, frame) -> state.

A State is never changed: the frames kept for stepping back are the states themselves, which share what did
not change between them.
"""

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.frames import (
    DeviceRow,
    Evaluation,
    Event,
    Frame,
    Mark,
    Overview,
    Role,
    RunFacts,
    Snapshot,
)

MOST_EVENTS = 1000
MOST_POINTS = 2000
"""Of a curve: more than a terminal has columns."""


_OVER = 10.0
"""Seconds that rates are averaged over, and"""
_APART = 2.0
"""from which on two moments are two."""


class Moment(NamedTuple):
    """The overview at a time, for curves."""

    time: float
    version: int
    ingress: int
    egress: int
    updates_per_s: float
    ingress_rate: float
    egress_rate: float
    loss: float | None
    reduction: float | None
    reduction_both_ways: float | None = None
    """None too in recordings that were made before it was kept."""


class TrafficCounts(NamedTuple):
    """What moved between devices and server by some moment, beside dense float32."""

    ingress: int
    egress: int
    dense: int
    """Bytes that the same updates take as float32, in one direction; a dense model for each is as many."""

    @property
    def reduction_down(self) -> float | None:
        """How many times less than dense models was sent; None if it is not known what was."""
        return self.dense / self.egress if self.egress else None

    @property
    def reduction_both_ways(self) -> float | None:
        """How many times less than dense in both directions; None if one of them is not known."""
        return 2 * self.dense / (self.ingress + self.egress) if self.egress else None


@dataclass(frozen=True, slots=True)
class MonitorState:
    """A run as of its last frame."""

    time: float
    """Of the server's clock."""
    run: RunFacts
    role: Role
    devices: Mapping[int, DeviceRow]
    overview: Overview
    evaluations: tuple[Evaluation, ...]
    events: tuple[Event, ...]
    trend: tuple[Moment, ...]
    """How the overview went while somebody watched."""
    missed_events: int
    changed: int
    """Rows that the last frame brought."""
    device_ingress: int
    """Bytes received from the devices, and"""
    device_egress: int
    """sent to them: without what monitors and operators move."""

    @property
    def traffic(self) -> TrafficCounts:
        """Of the devices; as of the last evaluation if nobody knows what each was sent, as in a journal."""
        if not self.device_egress and self.evaluations and self.evaluations[-1].egress:
            newest = self.evaluations[-1]
            return TrafficCounts(newest.ingress, newest.egress, 4 * self.run.layout_size * newest.version)
        return TrafficCounts(self.device_ingress, self.device_egress, self.overview.dense_bytes)


def reduce(state: MonitorState | None, frame: Frame) -> MonitorState:
    """The state after a frame. Raises Malformed for a Delta to nothing."""
    if isinstance(frame, Snapshot):
        return _begin(state, frame)
    if state is None:
        raise Malformed("a feed begins with a snapshot, not with a delta")
    before = [state.devices[row.id] for row in frame.devices if row.id in state.devices]
    after = replace(
        state,
        time=frame.time,
        devices={**state.devices, **{row.id: row for row in frame.devices}}
        if frame.devices
        else state.devices,
        overview=frame.overview,
        evaluations=_thinned(_together(state.evaluations, frame.evaluations)),
        events=(state.events + frame.events)[-MOST_EVENTS:],
        missed_events=state.missed_events + frame.missed_events,
        changed=len(frame.devices),
        device_ingress=state.device_ingress + _sum(frame.devices, "ingress") - _sum(before, "ingress"),
        device_egress=state.device_egress + _sum(frame.devices, "egress") - _sum(before, "egress"),
    )
    return replace(after, trend=_thinned((*state.trend, _moment(after))))


def snapshot(state: MonitorState) -> Snapshot:
    """The frame that begins a feed at `state`."""
    return Snapshot(
        state.time,
        state.run,
        state.role,
        tuple(state.devices.values()),
        state.overview,
        state.evaluations,
        state.events,
    )


def replaced_trend(state: MonitorState, trend: tuple[Moment, ...]) -> MonitorState:
    """`state` with curves that are known from elsewhere."""
    return replace(state, trend=trend)


def remembering(state: MonitorState, past: Sequence[Mark]) -> MonitorState:
    """`state` with curves also of the times in which nobody watched from here, as the server knows."""
    known = sorted(moment.time for moment in state.trend)
    new = [moment for moment in _moments(past) if _away(moment.time, known) > _APART]
    if not new:
        return state
    earlier = sorted([*state.trend[:-1], *new], key=lambda moment: moment.time)
    return replace(state, trend=_thinned((*earlier, state.trend[-1])))


def _moments(past: Sequence[Mark]) -> Iterator[Moment]:
    """What a watcher would have seen of the marks: rates over as many seconds as the server's own are."""
    since = 0
    for number in range(1, len(past)):
        mark = past[number]
        while since < number - 1 and past[since + 1].time <= mark.time - _OVER:
            since += 1
        before = past[since]
        seconds = max(mark.time - before.time, 1e-3)
        yield Moment(
            mark.time,
            mark.version,
            mark.ingress,
            mark.egress,
            (mark.version - before.version) / seconds,
            (mark.ingress - before.ingress) / seconds,
            (mark.egress - before.egress) / seconds,
            mark.loss,
            None,
        )


def _together(known: tuple[Evaluation, ...], new: tuple[Evaluation, ...]) -> tuple[Evaluation, ...]:
    """As a server tells them: the last one alone has classes."""
    if not new or not known:
        return known + new
    return (*known[:-1], known[-1]._replace(classes=()), *new)


def _away(time: float, known: Sequence[float]) -> float:
    """From the nearest of the times, which are in order."""
    place = bisect.bisect_left(known, time)
    return min((abs(one - time) for one in known[max(0, place - 1) : place + 1]), default=float("inf"))


def _begin(before: MonitorState | None, frame: Snapshot) -> MonitorState:
    """After a reconnection, what was seen of the same run earlier is kept."""
    trend: tuple[Moment, ...] = ()
    events = frame.events
    missed = 0
    if before is not None and before.run.run == frame.run.run:
        trend, missed = before.trend, before.missed_events
        if events:
            events = tuple(event for event in before.events if event.time < events[0].time) + events
        else:
            events = before.events
    begun = MonitorState(
        frame.time,
        frame.run,
        frame.role,
        {row.id: row for row in frame.devices},
        frame.overview,
        _thinned(frame.evaluations),
        events[-MOST_EVENTS:],
        trend,
        missed,
        len(frame.devices),
        _sum(frame.devices, "ingress"),
        _sum(frame.devices, "egress"),
    )
    return replace(begun, trend=_thinned((*trend, _moment(begun))))


def _sum(rows: Iterable[DeviceRow], field: Literal["ingress", "egress"]) -> int:
    return sum(getattr(row, field) for row in rows)


def _moment(state: MonitorState) -> Moment:
    overview = state.overview
    return Moment(
        state.time,
        overview.version,
        overview.ingress,
        overview.egress,
        overview.updates_per_s,
        overview.ingress_rate,
        overview.egress_rate,
        overview.loss,
        overview.reduction,
        state.traffic.reduction_both_ways,
    )


Item = TypeVar("Item")


def _thinned(points: tuple[Item, ...]) -> tuple[Item, ...]:
    """Every second one once there are too many; the newest always stays."""
    return points if len(points) <= MOST_POINTS else (*points[:-1:2], points[-1])
