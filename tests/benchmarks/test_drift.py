"""What changes half-way, and the table over seeds; the runs themselves need a broker and minutes."""

import numpy as np

from benchmarks.drift import PARTS, drifted, measured, table
from benchmarks.live_report import DeviceReport, Report, Turn
from benchmarks.replay import Score
from edgeflock.shared.data.datasets import Dataset

DATA = Dataset(np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 1, 0, 1]))


def test_labels_change_places_half_way() -> None:
    found = drifted(DATA, "labels")
    assert found.y.tolist() == [0, 1, 1, 0]
    np.testing.assert_array_equal(found.x, DATA.x)


def test_columns_change_places_half_way() -> None:
    found = drifted(DATA, "sensors")
    assert found.x.tolist() == [[0, 1, 2], [3, 4, 5], [8, 7, 6], [11, 10, 9]]
    np.testing.assert_array_equal(found.y, DATA.y)


def test_nothing_changes_without_a_drift() -> None:
    found = drifted(DATA, "none")
    np.testing.assert_array_equal(found.x, DATA.x)
    np.testing.assert_array_equal(found.y, DATA.y)


def _report(right: int, updates: int) -> Report:
    """100 turns of one device with ten samples each; from the middle on none is right."""
    turns = [
        Turn(float(turn), turn, [Score(10, right if turn < 50 else 0, 5)], [0], [0]) for turn in range(100)
    ]
    device = DeviceReport("device-1", 10.0, 1000, 990, 4, 6, 0, updates)
    return Report("made up", 100.0, turns, [device], 0.5, 0.5)


def test_servers_of_an_arm_are_measured_together() -> None:
    found = measured([_report(8, 3), _report(6, 4)])
    assert found["accuracy"] == {"whole": 0.35, "before": 0.7, "just after": 0.0, "later": 0.0}
    assert found["no_change"] == dict.fromkeys(PARTS, 0.5)
    assert (found["published"], found["trained"], found["dropped"], found["waiting"]) == (2000, 1980, 8, 12)
    assert (found["updates"], found["lost"]) == (7, 0)


def test_the_table_has_the_mean_and_the_range_over_seeds() -> None:
    records = [
        {"drift": "labels", "arm": "async", "rate": 0.2, "seed": seed, **measured([_report(right, 3)])}
        for seed, right in enumerate((8, 6))
    ]
    row = table(records).splitlines()[2]
    assert row.startswith(
        "| labels | async | 0.2 | 2 | 35.0% (30.0% to 40.0%) | 70.0% (60.0% to 80.0%) | 0.0% |"
    )
