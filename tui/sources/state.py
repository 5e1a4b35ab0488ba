"""The monitor's state of a run: a pure reducer (state, frame) -> state.

A MonitorState never changes. The frames for stepping back are states, which share their unchanged parts.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from edgeflock.shared.errors import Malformed
from edgeflock.shared.numbers import RunTraffic
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

Notify = Callable[[], None]
"""Called when there is a new state to show."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of the connection that frames come from."""

    phase: Literal["connecting", "live", "waiting", "refused", "replay", "ended"]
    detail: str = ""
    """Why there is no connection. For a replay, its speed and place."""
    retry_time: float | None = None
    """The monotonic time of the next attempt."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of the displayed data."""

    age: float
    """Seconds since the last frame arrived."""
    interval: float = 1.0
    """Seconds between frames."""
    frozen: bool = False
    lag: float = 0.0
    """Seconds between the displayed frame and the newest one."""
    retry_seconds: float | None = None


MAX_EVENTS = 1000
MAX_POINTS = 2000
"""The most points of a curve, more than a terminal has columns."""


_RATE_SECONDS = 10.0
"""Seconds over which rates are averaged."""
_MIN_DISTANCE = 2.0
"""Seconds from which two moments count as different."""


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


@dataclass(frozen=True, slots=True)
class MonitorState:
    """A run after its last frame."""

    time: float
    """The time of the server's clock."""
    run: RunFacts
    role: Role
    devices: Mapping[int, DeviceRow]
    overview: Overview
    evaluations: tuple[Evaluation, ...]
    events: tuple[Event, ...]
    trend: tuple[Moment, ...]
    """The history of the overview while it was watched."""
    missed_events: int
    changed_rows: int
    """The number of rows in the last frame."""
    device_ingress: int
    """Bytes received from the devices, without those of monitors and operators."""
    device_egress: int
    """Bytes sent to the devices, without those of monitors and operators."""

    @property
    def traffic(self) -> RunTraffic:
        """The devices' traffic; that of the last evaluation if the rows have no egress, as in a journal."""
        if not self.device_egress and self.evaluations and self.evaluations[-1].egress:
            newest = self.evaluations[-1]
            return RunTraffic(newest.ingress, newest.egress, 4 * self.run.layout_size * newest.version)
        return RunTraffic(self.device_ingress, self.device_egress, self.overview.dense_bytes)


def reduce(state: MonitorState | None, frame: Frame) -> MonitorState:
    """Return the state after a frame. Raises Malformed if a feed begins with a Delta."""
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
        evaluations=_thin(_join(state.evaluations, frame.evaluations)),
        events=(state.events + frame.events)[-MAX_EVENTS:],
        missed_events=state.missed_events + frame.missed_events,
        changed_rows=len(frame.devices),
        device_ingress=state.device_ingress + _sum(frame.devices, "ingress") - _sum(before, "ingress"),
        device_egress=state.device_egress + _sum(frame.devices, "egress") - _sum(before, "egress"),
    )
    return replace(after, trend=_thin((*state.trend, _moment(after))))


def snapshot(state: MonitorState) -> Snapshot:
    """Return the frame that begins a feed at `state`."""
    return Snapshot(
        state.time,
        state.run,
        state.role,
        tuple(state.devices.values()),
        state.overview,
        state.evaluations,
        state.events,
    )


def with_history(state: MonitorState, marks: Sequence[Mark]) -> MonitorState:
    """Return `state` with the server's history for times that were not watched here."""
    known = sorted(moment.time for moment in state.trend)
    new = [moment for moment in _moments(marks) if _distance(moment.time, known) > _MIN_DISTANCE]
    if not new:
        return state
    earlier = sorted([*state.trend[:-1], *new], key=lambda moment: moment.time)
    return replace(state, trend=_thin((*earlier, state.trend[-1])))


def _moments(marks: Sequence[Mark]) -> Iterator[Moment]:
    """Yield the moments of the server's marks. Rates are averages over the same time as the server's."""
    since = 0
    for number in range(1, len(marks)):
        mark = marks[number]
        while since < number - 1 and marks[since + 1].time <= mark.time - _RATE_SECONDS:
            since += 1
        before = marks[since]
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


def _join(old: tuple[Evaluation, ...], new: tuple[Evaluation, ...]) -> tuple[Evaluation, ...]:
    """Join evaluations as a server sends them: only the last one has classes."""
    if not new or not old:
        return old + new
    return (*old[:-1], old[-1]._replace(classes=()), *new)


def _distance(time: float, times: Sequence[float]) -> float:
    """Return the distance to the nearest of the sorted times."""
    place = bisect.bisect_left(times, time)
    return min((abs(one - time) for one in times[max(0, place - 1) : place + 1]), default=float("inf"))


def _begin(before: MonitorState | None, frame: Snapshot) -> MonitorState:
    """Return the state of a Snapshot. After a reconnection, earlier data of the same run are kept."""
    trend: tuple[Moment, ...] = ()
    events = frame.events
    missed = 0
    if before is not None and before.run.run == frame.run.run:
        trend, missed = before.trend, before.missed_events
        if events:
            events = tuple(event for event in before.events if event.time < events[0].time) + events
        else:
            events = before.events
    state = MonitorState(
        frame.time,
        frame.run,
        frame.role,
        {row.id: row for row in frame.devices},
        frame.overview,
        _thin(frame.evaluations),
        events[-MAX_EVENTS:],
        trend,
        missed,
        len(frame.devices),
        _sum(frame.devices, "ingress"),
        _sum(frame.devices, "egress"),
    )
    return replace(state, trend=_thin((*trend, _moment(state))))


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


def _thin(points: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return every second point if there are too many. The newest one always stays."""
    return points if len(points) <= MAX_POINTS else (*points[:-1:2], points[-1])
