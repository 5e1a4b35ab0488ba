"""What a run says of its samples, as msgpack unpacked it."""

from typing import Any

import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.description import MOST, Description

WHOLE = Description(("age", "height"), (40.0, 170.0), (10.0, 8.0), ("cat", "dog"))


def packed(described: Description) -> list[Any]:
    return [list(field) if isinstance(field, tuple) else field for field in described]


@pytest.mark.parametrize("described", [WHOLE, Description(), Description(("a",), numbers=True)])
def test_what_is_written_is_read(described: Description) -> None:
    assert Description.of(packed(described)) == described


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "age", r"must be \[columns, means, spreads, labels, numbers\]"),
        (4, 1, r"must be \[columns"),
        (0, ["age", "age"], "columns must be different names"),
        (0, ["age", ""], "columns must be names of 1 to 200"),
        (0, ["age", "a\nb"], "columns must be names"),
        (0, ["age", 2], "columns must be names"),
        (0, ["age"], "as many as columns"),
        (1, [1.0], "as many means as spreads"),
        (1, [1.0, float("nan")], "means must be finite"),
        (1, [1.0, 2], "means must be finite floats"),
        (2, [1.0, 0.0], "spreads must be above 0"),
        (3, ["cat"] * 2, "labels must be different"),
        (3, [str(number) for number in range(MOST + 1)], "16384 at most"),
    ],
)
def test_what_is_none_is_refused(place: int, value: Any, message: str) -> None:
    fields = packed(WHOLE)
    fields[place] = value
    with pytest.raises(Malformed, match=message):
        Description.of(fields)


def test_only_what_nobody_sees_is_told() -> None:
    assert WHOLE.told == WHOLE
    assert Description(numbers=True).told is None
