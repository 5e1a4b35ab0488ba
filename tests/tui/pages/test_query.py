"""The filter."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.pages.fleet import View, select
from tests.tui.runs import state

STATE = state(14, 60)
LABELS = {"pi4-10": "kitchen roof"}


def names(query: str) -> list[str]:
    """The devices that pass, in order."""
    return [row.name for row in select(STATE, View(query=query), LABELS)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("jetson", ["jetson-1", "jetson-6", "jetson-11"]),
        ("JETSON 6", ["jetson-6"]),
        ("state:paused", ["pi4-5"]),
        ("state=away", ["zero2w-7"]),
        ("class:jetson !name:11", ["jetson-1", "jetson-6"]),
        ("batch>=32", ["laptop-4", "laptop-9", "laptop-14"]),
        ("batt<50 batch>10", ["laptop-14"]),
        ("label:roof", ["pi4-10"]),
        ("kitchen", ["pi4-10"]),
        ("undervoltage=true", ["pi5-3"]),
        ("temp>1000", []),
        ("too hot", ["pi4-5"]),
    ],
)
def test_the_filter(query: str, found: list[str]) -> None:
    assert names(query) == found


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("colour:red", "no column 'colour'.*label, id, name"),
        ("loss>low", "'low' is not a number"),
        ("loss>", "'' is not a number"),
    ],
)
def test_a_filter_that_cannot_be(query: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        names(query)
