"""The log's filter."""

import pytest

from edgeflock.shared.protocol.frames import Event
from edgeflock.tui.pages.events import matching

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
    assert [event.time for event in matching(EVENTS, query)] == times
