"""What runs came to: arithmetic over rows written by hand."""

from typing import Any

import pytest

from edgeflock.results.outcomes import Outcome, Setting
from edgeflock.shared.numbers import RunTraffic


def outcome(*accuracies: float | None, step: int = 10, **end: int) -> Outcome:
    """A run with an evaluation every `step` updates: of each a kilobyte, half a second, 100 bytes back."""
    rows: list[dict[str, Any]] = [
        {"updates": n, "seconds": n / 2, "ingress": n * 1000, "egress": n * 100, "accuracy": accuracy}
        for n, accuracy in ((i * step, accuracy) for i, accuracy in enumerate(accuracies, 1))
    ]
    return Outcome(rows, {"ended": "complete", **end})


def test_the_best_need_not_be_the_last() -> None:
    assert outcome(0.25, 0.75, 0.5).best == 0.75
    assert outcome(None, 0.5, None).best == 0.5
    assert outcome(None, None).best == 0
    assert outcome().best == 0


def test_the_first_evaluation_that_reached_an_accuracy() -> None:
    run = outcome(0.25, None, 0.75, 0.5, 0.75)
    assert run.first_reaching(0.25) == run.rows[0]
    assert run.first_reaching(0.3) == run.rows[2]
    assert run.first_reaching(0.75) == run.rows[2]
    assert run.first_reaching(0.76) is None


def test_where_every_run_reached_an_accuracy() -> None:
    setting = Setting("two", [outcome(0.25, 0.75), outcome(0.5, 0.5, 0.75, step=4)])
    assert setting.best() == [0.75, 0.75]
    assert setting.costs_to_reach(0.5, "updates") == [20, 4]
    assert setting.costs_to_reach(0.75, "seconds") == [10, 6]
    assert setting.costs_to_reach(0.75, "ingress") == [20_000, 12_000]
    assert setting.costs_to_reach(0.8, "updates") is None


def test_an_accuracy_that_one_run_did_not_reach_has_no_mean() -> None:
    assert Setting("two", [outcome(0.9), outcome(0.8)]).costs_to_reach(0.85, "updates") is None


def test_a_crossing_lies_on_the_line_between_evaluations() -> None:
    run = outcome(0.25, None, 0.75, 0.5, 0.8)
    assert run.interpolate(0.5, "updates") == 20
    assert run.interpolate(0.625, "seconds") == 12.5
    assert run.interpolate(0.2, "updates") == 10, "before the first evaluation nothing is known"
    assert run.interpolate(0.81, "updates") is None
    two = Setting("two", [outcome(0.25, 0.75), outcome(0.0, 0.5, step=4)])
    assert two.interpolate(0.5, "updates") == (15 + 8) / 2
    assert two.interpolate(0.6, "updates") is None


def test_a_run_as_far_as_a_moment() -> None:
    run = outcome(0.25, 0.75, None, 0.5, 0.8)
    assert run.truncate("updates", 9).rows == []
    assert run.truncate("updates", 19).best == 0.25
    assert run.truncate("ingress", 40_000).best == 0.75
    assert run.truncate("ingress", 40_000).last == 0.5
    assert run.truncate("traffic", 43_999).last == 0, (
        "30,000 received and 3,000 sent: the third, which has none"
    )
    assert run.truncate("seconds", 25).best == 0.8
    two = Setting("two", [run, outcome(0.5, 1.0)])
    cut = two.truncate("updates", 15)
    assert cut is not None
    assert cut.best() == [0.25, 0.5]
    assert two.truncate("updates", 5) is None


def test_a_collapse_shows_in_the_last_and_in_the_mean_of_the_last_five() -> None:
    run = outcome(0.9, 0.98, 0.5, 0.4, 0.3, 0.2, 0.1)
    assert (run.best, run.last) == (0.98, 0.1)
    assert run.last_five == pytest.approx(0.3)
    assert outcome(0.25, 0.75).last_five == 0.5, "of all, if they are fewer"
    assert (outcome().last, outcome().last_five) == (0, 0)
    two = Setting("two", [run, outcome(0.25, 0.75)])
    assert two.last() == [0.1, 0.75]
    assert two.last_five() == [pytest.approx(0.3), 0.5]


def test_traffic_is_both_ways_and_beside_dense() -> None:
    """1,000 bytes an update received, 100 sent; a dense update of 1,100 parameters is 4,400 bytes."""
    setting = Setting("two", [outcome(0.25, 0.75, size=1100), outcome(0.5, 0.75, step=30, size=1100)])
    assert setting.costs_to_reach(0.5, "traffic") == [22_000, 33_000]
    traffic = setting.traffic_to_reach(0.5)
    assert traffic == RunTraffic(25_000, 2_500, 110_000)
    assert (traffic.reduction, traffic.reduction_both_ways) == (4.4, 8)
    assert traffic.cells() == ["25.0 kB (4.4x)", "2.5 kB (44x)", "27.5 kB (8.0x)"]
    assert setting.traffic() == RunTraffic(40_000, 4_000, 176_000)
    assert setting.traffic_to_reach(0.8) is None
    assert setting.series("traffic")[0] == (22_000, [0.25, 0.5])
    assert setting.outcomes[0].interpolate(0.5, "traffic") == 16_500


def test_without_the_size_of_the_model_nothing_is_said_of_dense() -> None:
    traffic = Setting("two", [outcome(0.5), outcome(0.5, size=10)]).traffic()
    assert traffic.cells() == ["10.0 kB", "1.0 kB", "11.0 kB"]
    assert traffic.reduction is traffic.reduction_both_ways is None


def test_a_series_is_as_long_as_the_shortest_run() -> None:
    setting = Setting("two", [outcome(0.25, 0.5, 0.75), outcome(0.5, None, step=20)])
    assert setting.series("updates") == [(15, [0.25, 0.5]), (30, [0.5, 0])]
    assert setting.series("seconds") == [(7.5, [0.25, 0.5]), (15, [0.5, 0])]
    assert Setting("none", [outcome(), outcome(0.5)]).series("updates") == []
