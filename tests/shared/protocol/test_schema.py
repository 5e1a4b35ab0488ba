"""Checks from type hints: what they let through, and what they say of the rest."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.schema import check_for, checks_of, rows_for


class Boat(NamedTuple):
    number: int
    rig: Literal["sloop", "ketch"]
    length: float
    skipper: str | None
    flag: Literal["red", "blue"] | None
    afloat: bool


SLOOP: list[Any] = [7, "sloop", 9.5, "Ada", None, True]

ALLOWED: dict[Any, list[Any]] = {
    int: [0, -3, 1 << 80],
    float: [0.5, 3, -0.0],
    str: ["", "a"],
    bytes: [b""],
    bool: [True, False],
    list: [[], [[None]]],
    int | None: [0, None],
    Literal["a", "b"]: ["a", "b"],
    Literal["a", "b"] | None: ["a", None],
}
VALUES = [0, 1.5, math.inf, math.nan, "", "a", "c", b"", True, None, [], {}, (), [1]]


@pytest.mark.parametrize("hint", ALLOWED, ids=str)
def test_a_value_of_the_hint_passes_as_it_is(hint: Any) -> None:
    for value in ALLOWED[hint]:
        assert check_for(hint, {})(value, "x") is value


def allows(hint: Any, value: object) -> bool:
    """What the hint says, by exact types."""
    if value is None:
        return hint in (int | None, Literal["a", "b"] | None)
    kind = type(value)
    if hint in (int, int | None):
        return kind is int
    if hint is float:
        return kind is int or (isinstance(value, float) and math.isfinite(value))
    if hint in (str, bytes, bool, list):
        return kind is hint
    return value in ("a", "b") if kind is str else False


@pytest.mark.parametrize("hint", ALLOWED, ids=str)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_everything_else_is_refused_by_its_name(hint: Any, value: object) -> None:
    if allows(hint, value):
        assert check_for(hint, {})(value, "boat.x") is value
    else:
        with pytest.raises(Malformed, match=r"^boat\.x must be "):
            check_for(hint, {})(value, "boat.x")


def test_what_is_special_goes_first_by_the_hint_and_by_its_origin() -> None:
    special = {int: lambda value, name: (name, value), dict: lambda value, name: "a dict"}
    assert check_for(int, special)("anything", "n") == ("n", "anything")
    assert check_for(int | None, special)(5, "n") == ("n", 5)
    assert check_for(int | None, special)(None, "n") is None
    assert check_for(dict[str, int], special)(5, "n") == "a dict"


def test_the_fields_of_a_record_in_their_order() -> None:
    @dataclass
    class Buoy:
        colour: str
        depth: float

    assert list(checks_of(Buoy, {})) == ["colour", "depth"]
    assert list(checks_of(Boat, {})) == list(Boat._fields)


def test_rows_become_records() -> None:
    other = [8, "ketch", 12, None, "red", False]
    assert rows_for(Boat)([SLOOP, other], "boats") == (
        Boat(7, "sloop", 9.5, "Ada", None, True),
        Boat(8, "ketch", 12, None, "red", False),
    )
    assert rows_for(Boat)([], "boats") == ()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ((), "boats must be rows of 6 entries"),
        ([SLOOP[1:]], "boats must be rows of 6 entries"),
        ([tuple(SLOOP)], "boats must be rows of 6 entries"),
        ([SLOOP, [True, *SLOOP[1:]]], "boats.number must be int, not bool"),
        ([[None, *SLOOP[1:]]], "boats.number must be int, not NoneType"),
        ([[7, "junk", *SLOOP[2:]]], "boats.rig must be one of sloop, ketch, not 'junk'"),
        ([[7, None, *SLOOP[2:]]], "boats.rig must be one of sloop, ketch, not NoneType"),
        ([[7, ["sloop"], *SLOOP[2:]]], "boats.rig must be one of sloop, ketch, not list"),
        ([[7, "sloop", math.nan, *SLOOP[3:]]], "boats.length must be finite"),
        ([[*SLOOP[:3], x, *SLOOP[4:]] for x in (3, b"")], "boats.skipper must be str, not bytes, int"),
        ([[*SLOOP[:4], "green", True]], "boats.flag must be one of red, blue, not 'green'"),
        ([[*SLOOP[:5], 1]], "boats.afloat must be bool, not int"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_by_its_column(rows: object, complaint: str) -> None:
    with pytest.raises(Malformed) as caught:
        rows_for(Boat)(rows, "boats")
    assert str(caught.value) == complaint


@given(column=st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
def test_a_column_passes_if_each_of_its_values_does(column: list[Any]) -> None:
    for place, hint in enumerate((int, Literal["a", "b"], float, str | None)):

        class One(NamedTuple):
            x: hint  # type: ignore[valid-type]  # every hint in turn

        def passes(value: object, hint: Any = hint) -> bool:
            try:
                check_for(hint, {})(value, "x")
            except Malformed:
                return False
            return True

        rows = [[value] for value in column]
        if all(map(passes, column)):
            assert len(rows_for(One)(rows, "ones")) == len(column), place
        else:
            with pytest.raises(Malformed):
                rows_for(One)(rows, "ones")
