"""The filter."""

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.pages.fleet import View, natural_key, select
from tests.tui.runs import state

STATE = state(14, 60)


def names(query: str) -> list[str]:
    """The devices that pass, in order."""
    return [row.name for row in select(STATE, View(query=query))]


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
        ("label:site=north name:1", ["pi4-10"]),
        ("labels=site=north state:training", ["pi4-10"]),
        ("version:9", []),
        ("north", ["pi4-5", "pi4-10"]),
        ("undervoltage=true", ["pi5-3"]),
        ("temp>1000", []),
        ("too hot", ["pi4-5"]),
        ("seen>20", ["laptop-4", "pi4-5", "zero2w-7"]),
        ("seen>0.5m", ["laptop-4"]),
        ("seen<=30s in>0.15MB", ["laptop-9", "laptop-14"]),
        ("in>157kb in<1gb", ["laptop-9", "laptop-14"]),
        ("out>1e6 seen<1h", ["jetson-1", "jetson-6", "jetson-11", "laptop-4", "laptop-9", "laptop-14"]),
        ("state:away | state:paused", ["pi4-5", "zero2w-7"]),
        ("class:pi5 !name:13 | laptop-9|", ["laptop-9", "pi5-3", "pi5-8"]),
        ("~loss>1.8 upd/s>3", ["laptop-4"]),
        ("|", sorted((row.name for row in STATE.devices.values()), key=natural_key)),
    ],
)
def test_the_filter(query: str, found: list[str]) -> None:
    assert names(query) == found


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("colour:red", "no column 'colour'; known are id, name"),
        ("loss>low", "'low' is not a number"),
        ("loss>", "'' is not a number"),
        ("loss>1m", "'1m' is not a number$"),
        ("in>1.2.3", "'1.2.3' is not a number, with or without one of b, kb, mb, gb"),
        ("seen>5mb | pi", "'5mb' is not a number, with or without one of s, m, h, d"),
    ],
)
def test_a_filter_that_cannot_be(query: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        names(query)
