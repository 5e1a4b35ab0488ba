"""The fleet's labels: the mean over devices, and over updates."""

import numpy as np
import pytest

from edgeflock.server.engine.labels import FleetLabels
from edgeflock.shared.codecs import labels
from edgeflock.shared.errors import WrongDtype


def shares(*numbers: float) -> bytes:
    return labels.encode(np.array(numbers))


def test_devices_count_alike_in_one_mean_and_by_updates_in_the_other() -> None:
    fleet = FleetLabels()
    for device in [0] * 3 + [1]:
        fleet.count(device)
    fleet.report(0, shares(1, 0))
    alike, lately = labels.decode(fleet.report(1, shares(0, 1)), rows=2)
    assert alike == pytest.approx([0.5, 0.5])
    assert lately == pytest.approx([0.75, 0.25])
    assert fleet.report(1, b"") == b""


def test_how_much_devices_have_in_common() -> None:
    fleet = FleetLabels()
    assert fleet.overlap == 1
    fleet.report(0, shares(0.5, 0.5))
    fleet.report(1, shares(0.5, 0.5))
    assert fleet.overlap == 1
    for device, own in enumerate((shares(1, 0), shares(0, 1))):
        fleet.report(device, own)
    assert fleet.overlap == 0.5


def test_only_late_updates_count() -> None:
    fleet = FleetLabels()
    fleet.count(1)
    for _ in range(1024):
        fleet.count(0)
    fleet.report(0, shares(1, 0))
    _, lately = labels.decode(fleet.report(1, shares(0, 1)), rows=2)
    assert lately.tolist() == [1, 0]


def test_a_report_of_other_classes_is_no_part_of_the_mean() -> None:
    fleet = FleetLabels()
    fleet.report(0, shares(0.2, 0.3, 0.5))
    alike, lately = labels.decode(fleet.report(1, shares(0, 1)), rows=2)
    assert alike.tolist() == lately.tolist() == [0, 1]


def test_reports_are_bounded_in_number() -> None:
    fleet = FleetLabels()
    wide = shares(*np.full(4096, 1 / 4096))
    for device in range(200):
        fleet.report(device, wide)
    assert len(fleet._reports) == 64


def test_what_are_no_shares_is_refused() -> None:
    with pytest.raises(WrongDtype, match="shares of classes"):
        FleetLabels().report(0, shares(0.5, 0.9))
