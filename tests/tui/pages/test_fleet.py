"""Which devices the table shows, and in which order."""

from dataclasses import replace

import pytest

from edgeflock.tui.pages.fleet import BY_KEY, COLUMNS, Column, View, ink, natural_key, order_columns, select
from tests.tui.runs import state

STATE = state(14, 60)


def test_names_sort_as_people_count() -> None:
    assert sorted(["pi-10", "pi-2", "Pi-1", "a", "10", "9"], key=natural_key) == [
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
    rows = select(STATE, View(by.key, reverse))
    assert len(rows) == 14
    values = [by.value(row) for row in rows]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == known
    assert known == sorted(known, reverse=reverse)


def test_columns_that_nobody_fills_come_last() -> None:
    rows = list(STATE.devices.values())
    empty = [row._replace(rate=None, cpu=None) for row in rows]
    order = [column.key for column in order_columns(empty)]
    assert order.index("cpu") > order.index("drops")
    defended = ["clipped", "dropped", "standing"]
    assert {"rate", "cpu", *defended} == set(order[-5:])
    full = [row._replace(clipped=0, dropped=2, standing=-0.1) for row in rows]
    assert [column.key for column in order_columns(full)] == [column.key for column in COLUMNS[1:]]


def test_what_is_worth_a_look_stands_out() -> None:
    row = next(iter(STATE.devices.values()))._replace(state="training")
    full = row._replace(ram=380.0, memory=416.0, clipped=3, dropped=0, standing=-0.02)
    inks = {key: ink(BY_KEY[key], full) for key in ("ram", "clipped", "dropped", "standing")}
    assert inks == {"ram": "warn", "clipped": "warn", "dropped": "text", "standing": "warn"}
    assert ink(BY_KEY["ram"], full._replace(ram=370.0)) == "text"
    assert ink(BY_KEY["ram"], full._replace(memory=None)) == "text"


def test_equal_values_stay_in_the_order_of_the_devices() -> None:
    same = {n: row._replace(loss=0.5) for n, row in STATE.devices.items()}
    rows = select(replace(STATE, devices=same), View("loss"))
    assert [row.id for row in rows] == list(range(1, 15))
