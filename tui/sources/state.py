"""What the monitor knows of a run: a pure reducer (state, frame) -> state.

A State is never changed: the frames kept for stepping back are the states themselves, which share what did
not change between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.frames import (
    Delta,
    DeviceRow,
    Evaluation,
    Event,
    Frame,
    Overview,
    Role,
    RunFacts,
    Snapshot,
)

MOST_EVENTS = 1000
MOST_POINTS = 2000
"""Of a curve: more than a terminal has columns."""


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


@dataclass(frozen=True, slots=True)
class State:
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


def reduce(state: State | None, frame: Frame) -> State:
    """The state after a frame. Raises Malformed for a Delta to nothing."""
    if isinstance(frame, Snapshot):
        return _begin(state, frame)
    if state is None:
        raise Malformed("a feed begins with a snapshot, not with a delta")
    return replace(
        state,
        time=frame.time,
        devices={**state.devices, **{row.id: row for row in frame.devices}}
        if frame.devices
        else state.devices,
        overview=frame.overview,
        evaluations=_thinned(state.evaluations + frame.evaluations),
        events=(state.events + frame.events)[-MOST_EVENTS:],
        trend=_thinned((*state.trend, _moment(frame))),
        missed_events=state.missed_events + frame.missed_events,
        changed=len(frame.devices),
    )


def snapshot(state: State) -> Snapshot:
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


def replaced_trend(state: State, trend: tuple[Moment, ...]) -> State:
    """`state` with curves that are known from elsewhere."""
    return replace(state, trend=trend)


def _begin(before: State | None, frame: Snapshot) -> State:
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
    return State(
        frame.time,
        frame.run,
        frame.role,
        {row.id: row for row in frame.devices},
        frame.overview,
        _thinned(frame.evaluations),
        events[-MOST_EVENTS:],
        _thinned((*trend, _moment(frame))),
        missed,
        len(frame.devices),
    )


def _moment(frame: Snapshot | Delta) -> Moment:
    overview = frame.overview
    return Moment(frame.time, *(getattr(overview, name) for name in Moment._fields[1:]))


Item = TypeVar("Item")


def _thinned(points: tuple[Item, ...]) -> tuple[Item, ...]:
    """Every second one once there are too many; the newest always stays."""
    return points if len(points) <= MOST_POINTS else (*points[:-1:2], points[-1])
