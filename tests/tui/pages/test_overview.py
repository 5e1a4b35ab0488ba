"""The first page, as lines."""

from dataclasses import replace

import pytest

from edgeflock.shared.protocol.frames import Evaluation, TaskRoundStatus
from edgeflock.tui.pages import curves
from edgeflock.tui.pages.overview import overview, overview_numbers
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import line_width, plain_text
from tests.tui.runs import state


def with_everything() -> MonitorState:
    """Every number that there may be, and each as long as it gets."""
    made = state(14, 60)
    reported = replace(
        made.overview, cnc=0.123, shared_samples=999_999, reduction=15_723.4, dense_bytes=10**12, loss=4.1e6
    )
    return replace(made, overview=reported, device_ingress=10**7, device_egress=9 * 10**8)


def test_traffic_is_shown_both_ways_and_against_dense() -> None:
    names, values = plain_text(
        overview_numbers(replace(with_everything(), overview=state().overview), 78)
    ).split("\n")
    assert names.split("  ")[-1].strip() == "both, vs dense"
    dense = state().overview.dense_bytes
    assert "10 MB 233x" in values
    assert f"900 MB {dense / 9e8:.1f}x" in values
    assert values.endswith(f"910 MB {2 * dense / 9.1e8:.1f}x")


@pytest.mark.parametrize("width", [30, 78, 100, 138])
def test_every_number_is_whole_at_every_width(width: int) -> None:
    lines = overview_numbers(with_everything(), width)
    assert all(line_width(line) <= width for line in lines)
    shown = " ".join(plain_text(lines).split())
    assert "…" not in shown
    for part in (
        "10 MB 15,723x",
        "900 MB 1,111x",
        "910 MB 2,198x",
        "selections",
        "12.3%",
        "shared",
        "999,999",
    ):
        assert part in shown


def test_how_the_round_of_tasks_stands() -> None:
    made = state()
    tasks = replace(made, overview=replace(made.overview, tasks=TaskRoundStatus(8, 5, 2, 1_234)))
    for width in (38, 78):
        text = " ".join(plain_text(overview_numbers(tasks, width)).split())
        assert all(part in text for part in ("shards done", "5 of 8", "1,234"))
    assert "shards done" not in plain_text(overview_numbers(made, 78))


def test_metrics_of_the_newest_evaluation_are_shown() -> None:
    made = with_everything()
    newest = made.evaluations[-1]._replace(metrics={"topk(k=3)": 0.625, "f1": None})
    measured = replace(made, evaluations=(*made.evaluations, newest))
    for width in (38, 78):
        text = plain_text(overview_numbers(measured, width))
        assert all(part in text for part in ("topk(k=3)", "0.625", "f1"))
        assert max(map(len, text.splitlines())) <= width


def test_the_worst_class_of_the_newest_evaluation_is_shown() -> None:
    made = with_everything()
    newest = made.evaluations[-1]._replace(classes=((9, 10), (0, 0), (1, 8), (3, 3)))
    measured = replace(made, evaluations=(*made.evaluations, newest))
    for width in (38, 78):
        text = plain_text(overview_numbers(measured, width))
        assert "worst class" in text
        assert "2: 12.5%" in text
        assert max(map(len, text.splitlines())) <= width
    assert "worst class" not in plain_text(overview_numbers(made, 78))


def test_a_collapse_shows_beside_the_best() -> None:
    made = state(14, 60)
    accuracies = [0.98, 0.9, 0.3, 0.2, 0.1, 0.1, 0.05]
    known = tuple(Evaluation(n, made.time + n, 1.0, a, n, n) for n, a in enumerate(accuracies))
    collapsed = replace(made, evaluations=known)
    assert curves.final_mean(curves.accuracy(collapsed, "time")) == pytest.approx(15)
    text = plain_text(overview(collapsed, "time", 78, 20))
    assert "last 5 15%  best 98%" in text
    assert max(map(len, text.splitlines())) <= 78


def test_bytes_on_the_axis_are_those_both_ways() -> None:
    made = state(14, 60)
    newest = made.evaluations[-1]
    assert curves.accuracy(made, "bytes").x[-1] == newest.ingress + newest.egress
    assert curves.reduction(made, "bytes").x[-1] == made.overview.ingress + made.overview.egress


def test_a_policy_shows_its_return_where_others_show_their_accuracy() -> None:
    made = state(14, 60)
    returns = [20.0, 100.0, 475.0, 480.0, 300.0]
    known = tuple(
        Evaluation(n, made.time + n, -value, None, n, n, {"return": value, "length": value})
        for n, value in enumerate(returns)
    )
    acting = replace(made, evaluations=known)
    assert curves.returns(acting, "updates").y == returns
    assert curves.returns(made, "updates").y == []
    text = plain_text(overview(acting, "time", 100, 24))
    assert "last 5 275  best 480" in text
    assert "Accuracy" not in text
    names = plain_text(overview_numbers(acting, 138)).split()
    assert names.count("return") == 1
    assert "accuracy" not in names
