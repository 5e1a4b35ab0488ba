"""`edgeflock reproduce scheduling`: what it leaves behind."""

import json
from pathlib import Path

import pytest

from edgeflock.papers.reproduce import Reproduction
from edgeflock.papers.scheduling import experiments, reproduce
from edgeflock.papers.scheduling.experiments import SCHEMES, SchedulingScale


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reproduce, "QUICK", SchedulingScale(draws=2, samples=300, rounds=5))
    monkeypatch.setattr(experiments, "LOADS", (3, 10))
    reproduce.reproduce_scheduling(Reproduction("the command", tmp_path, quick=True))
    return tmp_path


@pytest.mark.slow
def test_it_leaves_tables_numbers_and_figures(results: Path) -> None:
    for name in ("figure1.png", "figure1.svg", "targets.png", "targets.svg"):
        assert (results / f"scheduling-{name}").stat().st_size > 5000
    summary = json.loads((results / "scheduling.json").read_text())
    assert summary["command"] == "the command"
    for one in summary["scenarios"].values():
        assert set(one["against_SS"]) == set(SCHEMES)
        assert one["against_SS"]["SS"] == [1.0] * 10
        assert one["against_SS"]["PC"][0] is None
        assert len(one["gain_of_SS_over_RA"]["draws"]) == 2
        known = [row for row in one["decided_on_the_way"] if row["world"] == "as before"]
        assert [row["r"] for row in known] == [3, 10]
        assert all(row["adaptive, everywhere"] == pytest.approx(1) for row in known)
        assert all(
            row["adaptive, cyclic"] >= row["least, cyclic"] - 1e-9 for row in one["decided_on_the_way"]
        )


@pytest.mark.slow
def test_the_paper_is_beside_ours(results: Path) -> None:
    page = (results / "scheduling.md").read_text()
    assert "| scenario 1 | about 16% |" in page
    assert "| scenario 2 | about 20% |" in page
    assert "![Figure 1](scheduling-figure1.png)" in page
    assert "nan" not in page
    assert "| independent | 10 |" in page
