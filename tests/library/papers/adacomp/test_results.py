"""What runs made by hand come to."""

import json
from statistics import fmean

import pytest

from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import FULL
from edgeflock.papers.adacomp.report import PAPER
from edgeflock.papers.adacomp.reproduce import best_rates
from tests.library.papers.adacomp.runs import (
    DATA,
    DENSE,
    SHORT,
    SMALL,
    best_of,
    measured,
    results_of,
    summary_of,
)


def test_the_best_rate_is_the_one_that_came_furthest() -> None:
    """At the end or before; the order in which they were tried does not matter."""
    best = dict(
        zip((method.name for method in experiments.FIGURE_3), (0.05, 0.2, 0.1, 0.05, 0.2, 0.4), strict=True)
    )
    tried = [
        measured(one, best_of(0.9 if best[one.name.rpartition(" rate ")[0]] == one.method.rate else 0.8))
        for one in experiments.grid(DATA, FULL)
    ]
    for order in (tried, tried[::-1]):
        methods = best_rates(order)
        assert [(method.name, method.rate) for method in methods] == list(best.items())
        assert [method.settings for method in methods] == [method.settings for method in experiments.FIGURE_3]


def test_the_reduction_is_dense_bytes_over_ours_at_97() -> None:
    """Dense: 1.6 and 2.4 GB; the record: 2 MB. Who gets there in one of two runs only does not count."""
    summary = summary_of(results_of(DENSE, SMALL))
    assert summary["best_at_97"] == "record"
    assert summary["reduction_at_97"] == pytest.approx(2_000_000_000 / 2_000_000)
    assert summary["reduction_both_ways_at_97"] == pytest.approx((2_000_000_000 + 250_000) / 2_200_000)
    dense = summary["figure3"]["ASGD"]["at"]
    assert (dense["0.95"]["updates"], dense["0.95"]["ingress"]) == (1500, 1_200_000_000)
    assert (dense["0.97"]["updates"], dense["0.97"]["ingress"]) == (2500, 2_000_000_000)
    assert dense["0.98"] is None
    # 2,000 updates of 1,000 parameters are 8 MB.
    assert summary["record"]["record"]["at"]["0.97"] == {
        "updates": 2000,
        "ingress": 2_000_000,
        "egress": 200_000,
        "reduction": 4,
        "reduction_both_ways": pytest.approx(16 / 2.2),
    }
    assert summary["figure3"]["Comp-ASGD c=0.01"]["at"]["0.97"] is None
    assert summary["figure3"]["Comp-ASGD c=0.01"]["at"]["0.95"]["ingress"] == 1000


def test_the_winner_may_be_any_of_figure_3() -> None:
    summary = summary_of(results_of(DENSE, SHORT))
    assert summary["best_at_97"] == "AdaComp c=0.01"
    assert summary["reduction_at_97"] == pytest.approx(2_000_000_000 / 18_000_000)


def test_there_is_no_reduction_if_dense_never_got_there() -> None:
    summary = summary_of(results_of(SHORT, SMALL))
    assert summary["reduction_at_97"] is summary["reduction_both_ways_at_97"] is None
    assert json.loads(json.dumps(summary))["reduction_at_97"] is None


def test_a_summary_says_what_was_run() -> None:
    summary = summary_of(results_of(DENSE, SMALL))
    assert set(summary) == set(
        "command commit date machine data final_accuracy last_ten_accuracy averaged reduction".split()
        + "best_at_97 reduction_at_97 reduction_both_ways_at_97 record figure3 table2 figure4".split()
    )
    ours = summary["record"]["record"]
    assert (ours["learning_rate"], ours["seeds"], ours["updates"], ours["devices"]) == (
        0.1,
        [0, 1],
        20_000,
        200,
    )
    assert ours["ended"] == ["complete", "complete"]
    assert ours["final_accuracy"] == {"mean": fmean((0.985, 0.981)), "min": 0.981, "max": 0.985}
    crashed = summary["table2"]["60,000 images, crashes, n=200"]
    assert crashed["final_accuracy"]["mean"] == pytest.approx(0.9525)
    assert crashed["last_accuracy"]["mean"] == pytest.approx(0.9425)
    assert crashed["last_ten_accuracy"]["mean"] == pytest.approx((0.9525 / 2 + 0.9525 + 0.9425) / 3)
    assert set(summary["table2"]) == set(PAPER["table 2"])
