"""Which devices the table shows, and in which order."""

from dataclasses import replace

import pytest

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.pages.fleet import COLUMNS, Column, View, natural, select, told
from tests.tui.runs import state

STATE = state(14, 60)
LABELS = {"pi4-10": "kitchen roof"}


def names(query: str = "", sort: str = "name", reverse: bool = False) -> list[str]:
    return [row.name for row in select(STATE, View(sort, reverse, query), LABELS)]


def test_names_sort_as_people_count() -> None:
    assert sorted(["pi-10", "pi-2", "Pi-1", "a", "10", "9"], key=natural) == [
        "9",
        "10",
        "a",
        "Pi-1",
        "pi-2",
        "pi-10",
    ]


@pytest.mark.parametrize("by", COLUMNS, ids=lambda column: column.key)
@pytest.mark.parametrize("reverse", [False, True])
def test_every_column_sorts_with_the_unknown_last(by: Column, reverse: bool) -> None:
    rows = select(STATE, View(by.key, reverse), LABELS)
    assert len(rows) == 14
    values = [by.value(row, LABELS) for row in rows]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == known
    assert known == sorted(known, reverse=reverse)


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


def test_columns_that_nobody_fills_come_last() -> None:
    rows = list(STATE.devices.values())
    empty = [row._replace(rate=None, cpu=None) for row in rows]
    order = [column.key for column in told(empty, {})]
    assert order.index("cpu") > order.index("drops")
    assert {"rate", "cpu", "label"} == set(order[-3:])
    assert [column.key for column in told(rows, LABELS)] == [column.key for column in COLUMNS[1:]]


def test_equal_values_stay_in_the_order_of_the_devices() -> None:
    same = {n: row._replace(loss=0.5) for n, row in STATE.devices.items()}
    rows = select(replace(STATE, devices=same), View("loss"), {})
    assert [row.id for row in rows] == list(range(1, 15))
