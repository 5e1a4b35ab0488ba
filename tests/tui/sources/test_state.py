"""The reducer, as the pure function that it is."""

from dataclasses import replace

import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.frames import Delta, Event, Snapshot
from edgeflock.tui.sources.state import MOST_EVENTS, MOST_POINTS, State, reduce, snapshot
from tests.tui.runs import BEGAN, frames


def begun(number: int = 3) -> tuple[Snapshot, Delta]:
    first, second, *_ = frames(number, 2)
    assert isinstance(first, Snapshot)
    assert isinstance(second, Delta)
    return first, second


def test_a_delta_replaces_the_rows_it_brings_and_no_other() -> None:
    first, second = begun()
    before = reduce(None, first)
    changed = second.devices[1]._replace(loss=0.25)
    after = reduce(before, replace(second, devices=(changed,)))
    assert after.devices[changed.id] == changed
    assert [after.devices[n] for n in (1, 3)] == [before.devices[n] for n in (1, 3)]
    assert after.overview == second.overview
    assert after.time == BEGAN + 1
    assert [moment.time for moment in after.trend] == [BEGAN, BEGAN + 1]


def test_the_state_before_is_left_as_it_was() -> None:
    first, second = begun()
    before, same = reduce(None, first), reduce(None, first)
    reduce(before, second)
    assert before == same


def test_a_delta_to_nothing_is_refused() -> None:
    with pytest.raises(Malformed, match="begins with a snapshot"):
        reduce(None, begun()[1])


def test_what_was_seen_survives_a_reconnection_to_the_same_run_only() -> None:
    first, second = begun()
    seen = reduce(reduce(None, first), second)
    old, new = Event(BEGAN, "joined", "pi-1", "early"), Event(BEGAN + 60, "left", "pi-1", "late")
    seen = replace(seen, events=(old,), missed_events=2)
    again = replace(first, time=BEGAN + 61, events=(new,), devices=first.devices[:1])
    after = reduce(seen, again)
    assert after.events == (old, new)
    assert [moment.time for moment in after.trend] == [BEGAN, BEGAN + 1, BEGAN + 61]
    assert (len(after.devices), after.missed_events) == (1, 2)
    other = reduce(seen, replace(again, run=replace(again.run, run="another")))
    assert (other.events, len(other.trend), other.missed_events) == ((new,), 1, 0)


def test_events_curves_and_evaluations_are_bounded() -> None:
    first, second = begun()
    state = reduce(None, first)
    event = Event(BEGAN, "warning", None, "again")
    for n in range(2 * MOST_POINTS):
        state = reduce(state, replace(second, time=BEGAN + n, events=(event,), devices=()))
    assert len(state.events) == MOST_EVENTS
    assert MOST_POINTS / 2 <= len(state.trend) <= MOST_POINTS
    assert (state.trend[0].time, state.trend[-1].time) == (BEGAN, BEGAN + 2 * MOST_POINTS - 1)
    times = [moment.time for moment in state.trend]
    assert times == sorted(times)


def test_a_snapshot_of_a_state_leads_back_to_it() -> None:
    state: State | None = None
    for frame in frames(5, 60):
        state = reduce(state, frame)
    assert state is not None
    again = reduce(None, snapshot(state))
    assert again == replace(state, trend=state.trend[-1:], changed=5)
