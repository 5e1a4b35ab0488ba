"""The report on runs made by hand."""

from pathlib import Path

import pytest

from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import QUICK
from edgeflock.papers.adacomp.report import PAPER, report
from edgeflock.results.outcomes import Outcome
from tests.library.papers.adacomp.runs import (
    DATA,
    DENSE,
    SHORT,
    SMALL,
    measured,
    results_of,
    row_of,
    summary_of,
)


@pytest.mark.slow
def test_the_report(tmp_path: Path) -> None:
    results = results_of(DENSE, SMALL)
    markdown = report(results, summary_of(results), tmp_path)
    assert "**1,000 times** less traffic up than dense ASGD to 97%, **909x both ways** (record" in markdown
    assert row_of(markdown, "ASGD") == [
        "2",
        *("0.1", "20,000"),
        "97.70% (97.50% to 97.90%)",
        "97.70% (97.50% to 97.90%)",
        "96.50% (96.00% to 97.00%)",
        "97.70% (97.50% to 97.90%)",
        "96.50% (96.00% to 97.00%)",
        "97.85%",
        *("1,500", "2,500", "-"),
    ]
    assert row_of(markdown, "record") == [
        "2",
        *("0.1", "20,000"),
        "98.30% (98.10% to 98.50%)",
        "98.30% (98.10% to 98.50%)",
        "96.90% (96.87% to 96.93%)",
        "98.30% (98.10% to 98.50%)",
        "96.90% (96.87% to 96.93%)",
        "-",
        *("1,000", "2,000", "3,000"),
    ]
    assert "\n| 97% | record | 2.0 MB (4.0x) | 200.0 kB (40x) | 2.2 MB (7.3x) |\n" in markdown
    assert "| 98% | record |" in markdown
    assert "| 98% | ASGD |" not in markdown, "not every run came so far"
    assert row_of(markdown, "60,000 images, crashes, n=200") == [
        "1",
        *("95.25%", "94.25%", "79.04%"),
        *("95.25%", "79.04%"),
        "97.17%",
    ]
    # 96.50% less 95.25%; and two equal ones.
    assert (
        "Loss of the best, in points: "
        "1.25 (60,000 images, no crashes, n=200 against 60,000 images, crashes, n=200); "
        "0.00 (12,000 images, no crashes, n=200 against 12,000 images, crashes, n=200).\n"
    ) in markdown
    for name in PAPER["table 2"] | PAPER["figure 4"]:
        assert len(row_of(markdown, name)) == 7
    for figure in ("adacomp-figure3", "adacomp-figure4"):
        assert f"({figure}.png)" in markdown
        assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{figure}.svg").read_text()
    svg = (tmp_path / "adacomp-figure3.svg").read_text()
    for method in experiments.FIGURE_3:
        assert svg.count(f">{method.name}<") == 3
    assert svg.count(">record<") == 2, "against traffic up, and both ways"
    assert "mean and range over the seeds" in svg


@pytest.mark.slow
def test_the_report_without_a_reduction(tmp_path: Path) -> None:
    results = results_of(SHORT, SMALL)
    markdown = report(results, summary_of(results), tmp_path)
    assert "Dense ASGD did not reach 97% in every run, so there is no ratio at 97%." in markdown
    assert "times** less" not in markdown


@pytest.mark.slow
def test_both_models_of_a_run_and_the_learning_rates(tmp_path: Path) -> None:
    results = results_of(DENSE, SMALL)
    rows = [{**row, "metrics": {"unaveraged": row["accuracy"] - 0.1}} for row in DENSE[0].rows]
    one = next(experiments.grid(DATA, QUICK))
    results["grid"] = [measured(one, Outcome(rows, DENSE[0].end))]
    markdown = report(results, summary_of(results), tmp_path)
    assert row_of(markdown, "ASGD rate 0.05") == [
        "20,000",
        "1",
        "87.90%",
        "87.90%",
        "87.00%",
        "97.90%",
        "97.00%",
    ]
