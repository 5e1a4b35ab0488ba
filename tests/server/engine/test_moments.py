"""The fleet's second moments: whose count, and what a false report can do."""

import numpy as np
import pytest

from edgeflock.server.engine.moments import FleetMoments
from edgeflock.shared.codecs import moments
from edgeflock.shared.errors import WrongDtype
from edgeflock.shared.model.layout import Layout

LAYOUT = Layout.from_shapes([("w", (2, 3)), ("b", (4,))])
LINES = int(LAYOUT.lines[-1])


def report(level: float) -> bytes:
    return moments.encode(np.full(LINES, level, np.float32))


def known(octets: bytes) -> list[float]:
    found: list[float] = moments.decode(octets, LAYOUT).tolist()
    return found


def test_a_report_is_answered_with_the_mean_over_the_devices() -> None:
    fleet = FleetMoments(LAYOUT)
    assert known(fleet.report(1, report(4))) == [4] * LINES
    assert known(fleet.report(2, report(16))) == [8] * LINES, "10, to the nearest power of two"
    assert known(fleet.report(1, report(128))) == [64] * LINES, "the last report of a device counts"


def test_who_reports_nothing_is_told_nothing() -> None:
    fleet = FleetMoments(LAYOUT)
    fleet.report(1, report(4))
    assert fleet.report(2, b"") == b""


@pytest.mark.parametrize("lie", [1e30, 0.0, 1e-30])
def test_one_false_report_among_ten_changes_little(lie: float) -> None:
    fleet = FleetMoments(LAYOUT)
    for device in range(9):
        fleet.report(device, report(1))
    assert set(known(fleet.report(9, report(lie)))) <= {1.0, 2.0}


def test_what_one_row_gains_is_bounded_too() -> None:
    fleet, lie = FleetMoments(LAYOUT), np.zeros(LINES, np.float32)
    lie[[0, 2]] = 1e30
    for device in range(9):
        fleet.report(device, report(1))
    assert max(known(fleet.report(9, moments.encode(lie)))) <= 4


def test_only_the_last_devices_count() -> None:
    fleet = FleetMoments(LAYOUT)
    for device in range(100):
        fleet.report(device, report(1024 if device < 36 else 1))
    assert known(fleet.report(99, report(1))) == [1] * LINES


def test_of_a_model_of_many_rows_fewer_devices_count() -> None:
    layout = Layout.from_shapes([("vector", ((1 << 19) - 1,))])  # two reports are all that may be kept
    fleet = FleetMoments(layout)
    reports = [moments.encode(np.full(layout.lines[-1], level, np.float32)) for level in (1024, 4, 16, 8)]
    for device in range(2):
        fleet.report(device, reports[device])
    assert fleet.report(2, reports[2]) == reports[3]


def test_what_is_of_another_model_changes_nothing() -> None:
    fleet = FleetMoments(LAYOUT)
    with pytest.raises(WrongDtype):
        fleet.report(1, moments.encode(np.ones(3, np.float32)))
    assert known(fleet.report(2, report(4))) == [4] * LINES
