"""What runs came to: arithmetic over rows written by hand."""

from typing import Any

from edgeflock.devices.results.outcomes import Outcome, Setting


def outcome(*accuracies: float | None, step: int = 10) -> Outcome:
    """A run with an evaluation every `step` updates, a kilobyte and half a second each."""
    rows: list[dict[str, Any]] = [
        {"updates": i * step, "seconds": i * step / 2, "ingress": i * step * 1000, "accuracy": accuracy}
        for i, accuracy in enumerate(accuracies, 1)
    ]
    return Outcome(rows, {"ended": "complete"})


def test_the_best_need_not_be_the_last() -> None:
    assert outcome(0.25, 0.75, 0.5).best == 0.75
    assert outcome(None, 0.5, None).best == 0.5
    assert outcome(None, None).best == 0
    assert outcome().best == 0


def test_the_first_evaluation_that_reached_an_accuracy() -> None:
    run = outcome(0.25, None, 0.75, 0.5, 0.75)
    assert run.first(0.25) == run.rows[0]
    assert run.first(0.3) == run.rows[2]
    assert run.first(0.75) == run.rows[2]
    assert run.first(0.76) is None


def test_where_every_run_reached_an_accuracy() -> None:
    setting = Setting("two", [outcome(0.25, 0.75), outcome(0.5, 0.5, 0.75, step=4)])
    assert setting.best() == [0.75, 0.75]
    assert setting.reaching(0.5, "updates") == [20, 4]
    assert setting.reaching(0.75, "seconds") == [10, 6]
    assert setting.reaching(0.75, "ingress") == [20_000, 12_000]
    assert setting.reaching(0.8, "updates") is None


def test_an_accuracy_that_one_run_did_not_reach_has_no_mean() -> None:
    assert Setting("two", [outcome(0.9), outcome(0.8)]).reaching(0.85, "updates") is None


def test_a_crossing_lies_on_the_line_between_evaluations() -> None:
    run = outcome(0.25, None, 0.75, 0.5, 0.8)
    assert run.crossing(0.5, "updates") == 20
    assert run.crossing(0.625, "seconds") == 12.5
    assert run.crossing(0.2, "updates") == 10, "before the first evaluation nothing is known"
    assert run.crossing(0.81, "updates") is None
    two = Setting("two", [outcome(0.25, 0.75), outcome(0.0, 0.5, step=4)])
    assert two.crossing(0.5, "updates") == (15 + 8) / 2
    assert two.crossing(0.6, "updates") is None


def test_the_best_by_a_moment() -> None:
    run = outcome(0.25, 0.75, None, 0.5, 0.8)
    assert run.best_by("updates", 9) is None
    assert run.best_by("updates", 19) == 0.25
    assert run.best_by("ingress", 40_000) == 0.75
    assert run.best_by("seconds", 25) == 0.8
    two = Setting("two", [run, outcome(0.5, 1.0)])
    assert two.best_by("updates", 15) == 0.375
    assert two.best_by("updates", 5) is None


def test_a_series_is_as_long_as_the_shortest_run() -> None:
    setting = Setting("two", [outcome(0.25, 0.5, 0.75), outcome(0.5, None, step=20)])
    assert setting.series("updates") == [(15, [0.25, 0.5]), (30, [0.5, 0])]
    assert setting.series("seconds") == [(7.5, [0.25, 0.5]), (15, [0.5, 0])]
    assert Setting("none", [outcome(), outcome(0.5)]).series("updates") == []
