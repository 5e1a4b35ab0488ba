"""Each cause is found, with the device that is wrong and with nobody else; honest fleets are left alone.

The whole table takes minutes: `python -m benchmarks.causes`. A few quick rows are here always.
"""

import pytest

from benchmarks.causes import CAUSES, CONTROLS, judge

QUICK = ("rows of the held-out data", "disk full", "hot, about the bound", "flapping")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_cause_is_found(name: str) -> None:
    _check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CAUSES | CONTROLS if name not in QUICK])
def test_all_causes_are_found_and_nobody_else_is_blamed(name: str) -> None:
    _check(name)


def _check(name: str) -> None:
    cause = (CAUSES | CONTROLS)[name]
    row = judge(name, cause, range(10, 11))
    assert row["wrong"] == {}
    assert row["right"] == (1 if cause.kinds else None)
    assert row["began at most"] == (1 if cause.kinds else 0), "it does not come and go"
