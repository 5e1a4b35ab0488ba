"""Which devices the table shows, and in which order."""

from dataclasses import replace

import pytest

from edgeflock.tui.pages.fleet import COLUMNS, Column, View, natural, select, told
from tests.tui.runs import state

STATE = state(14, 60)
LABELS = {"pi4-10": "kitchen roof"}


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
