"""The reducer, as the pure function that it is."""

from dataclasses import replace

import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.numbers import RunTraffic
from edgeflock.shared.protocol.frames import Delta, Evaluation, Event, Mark, Snapshot
from edgeflock.tui.sources.state import MAX_EVENTS, MAX_POINTS, MonitorState, reduce, snapshot, with_history
from tests.tui.runs import BEGAN, frames


def begun(number: int = 3) -> tuple[Snapshot, Delta]:
    first, second, *_ = frames(number, 2)
    assert isinstance(first, Snapshot)
    assert isinstance(second, Delta)
    return first, second


def test_what_a_server_remembers_fills_the_times_in_which_nobody_watched() -> None:
    first, *rest = frames(2, 2)
    seen = reduce(None, first)
    for frame in rest:
        seen = reduce(seen, frame)
    assert [m.time - BEGAN for m in seen.trend] == [0, 1, 2]
    past = [
        *(Mark(BEGAN - 300 + 100 * n, 1000 * n, 50 * n, 20 * n, None, 2) for n in range(3)),
        *(Mark(BEGAN + t, 5, 6, 7, 0.25, 2) for t in (0.4, 1.4)),
    ]
    both = with_history(seen, past)
    assert [m.time - BEGAN for m in both.trend] == [-200, -100, 0, 1, 2], "what was watched is seen better"
    assert both.trend[2:] == seen.trend
    assert both.trend[0][1:8] == (1000, 50, 20, 10.0, 0.5, 0.2, None)
    assert with_history(seen, past[:1]) is seen, "one mark has no rate"


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


def test_traffic_is_that_of_the_devices_and_beside_dense() -> None:
    """Whatever monitors move, which is in the overview, is not in it."""
    first, second = begun()
    rows = [row._replace(ingress=n * 100, egress=n * 1000) for n, row in enumerate(first.devices, 1)]
    overview = replace(first.overview, ingress=10**6, egress=10**7, dense_bytes=30_000)
    before = reduce(None, replace(first, devices=tuple(rows), overview=overview))
    assert before.traffic == RunTraffic(600, 6000, 30_000)
    changed = (rows[1]._replace(ingress=700, egress=4400), rows[2]._replace(id=9, ingress=1, egress=2))
    after = reduce(before, replace(second, devices=changed, overview=overview))
    assert after.traffic == RunTraffic(1101, 8402, 30_000), "a row in the place of another, and one more"
    assert after.traffic.reduction_down == 30_000 / 8402
    assert after.traffic.reduction_both_ways == after.trend[-1].reduction_both_ways == 60_000 / 9503
    nothing = reduce(None, replace(first, devices=(), overview=overview)).traffic
    assert nothing.reduction_down is nothing.reduction_both_ways is None


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
    for n in range(2 * MAX_POINTS):
        state = reduce(state, replace(second, time=BEGAN + n, events=(event,), devices=()))
    assert len(state.events) == MAX_EVENTS
    assert MAX_POINTS / 2 <= len(state.trend) <= MAX_POINTS
    assert (state.trend[0].time, state.trend[-1].time) == (BEGAN, BEGAN + 2 * MAX_POINTS - 1)
    times = [moment.time for moment in state.trend]
    assert times == sorted(times)


def test_a_snapshot_of_a_state_leads_back_to_it() -> None:
    state: MonitorState | None = None
    for frame in frames(5, 60):
        state = reduce(state, frame)
    assert state is not None
    again = reduce(None, snapshot(state))
    assert again == replace(state, trend=state.trend[-1:], changed_rows=5)


def test_the_last_evaluation_alone_keeps_its_classes() -> None:
    first, second = begun()
    state = reduce(None, first)
    for right in range(3):
        reported = Evaluation(right, BEGAN, 0.5, 0.5, 0, 0, {}, ((right, 9),))
        state = reduce(state, replace(second, evaluations=(reported,)))
    assert [one.classes for one in state.evaluations][-3:] == [(), (), ((2, 9),)]
    state = reduce(state, replace(second, evaluations=()))
    assert state.evaluations[-1].classes == ((2, 9),)
