"""The log's filter."""

import pytest

from edgeflock.shared.protocol.frames import Event
from edgeflock.tui.pages.events import cursor_index, filter_events, scroll_to

EVENTS = [
    Event(1.0, "joined", "pi-1", "joined"),
    Event(2.0, "round", None, "2 updates made version 2"),
    Event(3.0, "refused", "pi-1", "non-finite: the joined tensors"),
    Event(4.0, "left", "laptop", "left"),
]


@pytest.mark.parametrize(
    ("query", "times"),
    [
        ("", [1, 2, 3, 4]),
        ("pi-1", [1, 3]),
        ("joined", [1, 3]),
        ("kind:joined", [1]),
        ("!kind:round", [1, 3, 4]),
        ("!kind:round !pi-1", [4]),
        ("device:LAP", [4]),
        ("device:pi-1 finite", [3]),
        ("non-finite:", [3]),
        ("!", []),
        ("kind:evaluated", []),
    ],
)
def test_what_matches(query: str, times: list[float]) -> None:
    assert [event.time for event in filter_events(EVENTS, query)] == times


def test_the_chosen_event_stays_chosen_and_in_sight() -> None:
    assert cursor_index(EVENTS, None) == 0
    assert cursor_index(EVENTS, EVENTS[1]) == 2
    assert cursor_index([*EVENTS, Event(5.0, "left", "pi-1", "left")], EVENTS[1]) == 3, "a newer one came"
    assert cursor_index(EVENTS[2:], EVENTS[1]) == 1, "it is gone: the oldest that is left"
    assert scroll_to(0, 7, 100, 10) == 0
    assert scroll_to(50, 0, 100, 10) == 41
    assert scroll_to(45, 41, 100, 10) == 41, "it does not scroll before it has to"
    assert scroll_to(99, 0, 100, 10) == 90
    assert scroll_to(2, 0, 4, 10) == 0
