"""Refusals are counted against a device, but not those that honest ones meet."""

import pytest

from edgeflock.server.roster.registry import WINDOW, Conduct
from edgeflock.shared.errors import REFUSALS, Malformed, NonFinite, Refused

ORDINARY = {
    "already-computed", "bad-sequence", "base-expired", "base-in-future", "dropped", "forbidden",
    "layout-mismatch", "name-in-use", "no-room", "protocol-version", "quarantined", "run-complete",
    "run-diverged", "superseded", "too-many-devices", "too-many-refused", "too-slow", "unauthorized",
    "unavailable",
}  # fmt: skip


def test_one_too_many_is_told_and_then_they_count_anew() -> None:
    conduct = Conduct()
    assert [conduct.count_refusal(Malformed(), 3, 5.0) for _ in range(8)] == [False] * 3 + [True] + [
        False
    ] * 3 + [True]


def test_refusals_are_forgotten() -> None:
    conduct = Conduct()
    assert not any(conduct.count_refusal(NonFinite(), 3, number * WINDOW / 3) for number in range(50))


@pytest.mark.parametrize("kind", REFUSALS.values(), ids=REFUSALS)
def test_ordinary_refusals_do_not_count(kind: type[Refused]) -> None:
    conduct = Conduct()
    assert any(conduct.count_refusal(kind(), 3, 0.0) for _ in range(9)) == (kind.code not in ORDINARY)


def test_there_may_be_no_bound() -> None:
    conduct = Conduct()
    assert not any(conduct.count_refusal(Malformed(), 0, 0.0) for _ in range(100))
