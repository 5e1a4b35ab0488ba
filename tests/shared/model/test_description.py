"""What a run says of its samples, as msgpack unpacked it."""

from typing import Any

import msgpack
import pytest

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.description import MAX_CATEGORIES, MAX_NAMES, Description

NUMBERS = Description(
    ("age", "mode"), (40.0, 0.0), (10.0, 1.0), (), True, (21.5, 0.5), ((), ("auto", "off", "on"))
)
WHOLE = Description(("age", "height"), (40.0, 170.0), (10.0, 8.0), ("cat", "dog"))


def packed(described: Description) -> list[Any]:
    """As msgpack brings it."""
    found: list[Any] = msgpack.unpackb(msgpack.packb(described.fields))
    return found


@pytest.mark.parametrize(
    "described",
    [WHOLE, NUMBERS, NUMBERS._replace(categories=()), Description(), Description(("a",), numbers=True)],
)
def test_what_is_written_is_read(described: Description) -> None:
    assert Description.from_msgpack(packed(described)) == described


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "age", r"must be \[columns, means, spreads, labels, numbers, target, categories\]"),
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
        (3, [str(number) for number in range(MAX_NAMES + 1)], "16384 at most"),
        (5, [1.0], "target must be the mean and the deviation"),
        (5, [1.0, 0.0], "spreads must be above 0"),
        (5, [float("inf"), 1.0], "target must be finite"),
        (6, [["a"]], "as many categories as columns"),
        (6, [[], "a"], "categories must be lists of names"),
        (6, [[], ["a", "a"]], "categories must be different"),
        (6, [[], [str(number) for number in range(MAX_CATEGORIES + 1)]], "100 at most"),
    ],
)
def test_what_is_none_is_refused(place: int, value: Any, message: str) -> None:
    fields = packed(WHOLE if place < 5 else NUMBERS)
    fields[place] = value
    with pytest.raises(Malformed, match=message):
        Description.from_msgpack(fields)


def test_only_what_nobody_sees_is_told() -> None:
    assert WHOLE.reported == WHOLE
    assert Description(numbers=True).reported is None
    assert len(WHOLE.fields) == 5, "what an older device reads"
    assert NUMBERS.inputs == 4
