"""The whole reproduction, with runs that are made up."""

import contextlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeflock.papers import reproduce
from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import QUICK
from edgeflock.papers.adacomp.reproduce import reproduce_adacomp
from edgeflock.papers.reproduce import Reproduction
from edgeflock.results.sweep import Job, sweep
from edgeflock.shared.errors import ConfigError
from tests.library.papers.adacomp.runs import row_of, run_of


@pytest.fixture
def mnist(tmp_path: Path) -> str:
    """Ten images, of which the runs that are made up need none."""
    x, y = np.zeros((10, 1, 28, 28), np.float32), np.arange(10)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return f"npz:{tmp_path}/mnist.npz"


def leave(job: Job) -> None:
    """What a run of this job leaves. Rate 0.2 is the best for everything but ASGD, for which 0.05 is."""
    rate, dense = job.file.coordination.learning_rate, job.file.compression.select == 1
    best = rate == (0.05 if dense else 0.2)
    made = run_of((1000, 0.98 if best else 0.975, 10**9 if dense else 10**6), seed=job.seed)
    job.directory.mkdir(parents=True, exist_ok=True)
    job.path.write_text("".join(json.dumps(line) + "\n" for line in (*made.rows, made.end)))


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[list[Job]]:
    """What was asked of sweep."""
    asked: list[list[Job]] = []

    def sweep(jobs: Sequence[Job]) -> None:
        asked.append(list(jobs))
        for job in jobs:
            leave(job)

    monkeypatch.setattr(reproduce, "sweep", sweep)
    return asked


@pytest.mark.slow
def test_the_whole_reproduction(
    tmp_path: Path, mnist: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "results"
    reproduce_adacomp(Reproduction("this", out, mnist, seeds=2, grid=True, as_json=True))
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "adacomp.json").read_text())
    assert printed["reduction_at_97"] == 1000
    assert {name: one["learning_rate"] for name, one in printed["figure3"].items()} == {
        method.name: 0.05 if method is experiments.ASGD else 0.2 for method in experiments.FIGURE_3
    }
    # Table II and Figure 4 are at the rate that AdaComp c=0.01 came furthest with.
    assert {one["learning_rate"] for part in ("table2", "figure4") for one in printed[part].values()} == {0.2}
    names = {path.name for path in out.iterdir()}
    assert names == {"adacomp.json", "adacomp.md", "runs"} | {
        f"adacomp-figure{number}.{kind}" for number in (3, 4) for kind in ("png", "svg")
    }
    grid, parts = swept
    assert {job.seed for job in grid} == {0}
    assert len(grid) == 24
    assert len(printed["grid"]) == 24
    # Sixteen settings, of which two are the same. First what the headline is made of, then seed by seed.
    assert [job.title for job in parts[:4]] == ["record: record", "figure 3: ASGD"] * 2
    assert [job.seed for job in parts] == [0, 0, 1, 1] + [0] * 13 + [1] * 13
    assert len({job.path for job in parts}) == 30


@pytest.mark.slow
def test_quick_has_no_grid_and_one_seed(
    tmp_path: Path, mnist: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce_adacomp(Reproduction("", tmp_path, mnist, quick=True, updates=300))
    assert capsys.readouterr().out.startswith("# AdaComp, reproduced\n")
    (parts,) = swept
    assert {(job.seed, job.file.end.updates) for job in parts} == {(0, 300)}
    (crash,) = {kind.crash for job in parts for kind in job.file.devices.values()} - {0}
    assert crash == pytest.approx(1 / 3)


def test_too_few_updates_are_refused(tmp_path: Path, mnist: str, swept: list[list[Job]]) -> None:
    for updates in (1, 200):
        with pytest.raises(ConfigError, match=f"--updates {updates} must be more than the 200 devices"):
            reproduce_adacomp(Reproduction("", tmp_path / "out", mnist, quick=True, updates=updates))
    assert swept == []
    assert not (tmp_path / "out").exists()


def report_finished(mnist: str, out: Path, *, quick: bool = True) -> None:
    """With three seeds."""
    reproduce_adacomp(Reproduction("this", out, mnist, quick=quick, seeds=3, finished=True))


def leave_runs(mnist: str, out: Path, left: dict[tuple[str, str], int]) -> None:
    """The runs of so many seeds of each (part, name)."""
    samples = 10
    for one in [
        *experiments.record(mnist, QUICK),
        *experiments.figure_3(mnist, QUICK, experiments.FIGURE_3),
        *experiments.table_2(mnist, samples, QUICK, experiments.ADACOMP),
        *experiments.figure_4(mnist, samples, QUICK, experiments.ADACOMP),
    ]:
        for job in one.jobs(out, tuple(range(left.get((one.part, one.name), 0)))):
            leave(job)


SOME = {
    ("record", "record"): 3,
    ("figure 3", "ASGD"): 2,
    ("figure 3", "AdaComp c=0.1"): 1,
    ("table 2", "10 images, crashes, n=200"): 1,
    ("figure 4", "10 images, one class"): 1,
}


@pytest.mark.slow
def test_finished_reports_what_has_ended_and_runs_nothing(
    tmp_path: Path, mnist: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    leave_runs(mnist, tmp_path, SOME)
    (half,) = next(experiments.record(mnist, QUICK)).jobs(tmp_path, (2,))
    half.path.write_text(half.path.read_text().splitlines()[0] + "\n")  # this one has not ended yet
    report_finished(mnist, tmp_path)
    assert swept == []
    markdown = capsys.readouterr().out
    assert [row_of(markdown, name)[0] for name in ("record", "ASGD", "AdaComp c=0.1")] == ["2", "2", "1"]
    assert "Comp-ASGD" not in markdown
    summary = json.loads((tmp_path / "adacomp.json").read_text())
    assert summary["record"]["record"]["seeds"] == summary["figure3"]["ASGD"]["seeds"] == [0, 1]
    assert summary["reduction_at_97"] == 1000
    assert set(summary["table2"]) == {"10 images, crashes, n=200"}


@pytest.mark.slow
def test_finished_without_a_part_leaves_it_out(tmp_path: Path, mnist: str) -> None:
    leave_runs(mnist, tmp_path, {key: seeds for key, seeds in SOME.items() if key[0] != "table 2"})
    report_finished(mnist, tmp_path)
    assert "table2" not in json.loads((tmp_path / "adacomp.json").read_text())
    with pytest.raises(ConfigError, match=f"--finished: in {tmp_path}/empty no run has ended yet of record"):
        report_finished(mnist, tmp_path / "empty")
    assert not (tmp_path / "empty").exists()


def test_finished_before_the_dense_baseline(tmp_path: Path, mnist: str) -> None:
    """The dense runs take longest: others of Figure 3 may well have ended before."""
    leave_runs(mnist, tmp_path, {key: seeds for key, seeds in SOME.items() if key[1] != "ASGD"})
    with contextlib.suppress(ConfigError):
        report_finished(mnist, tmp_path)


def test_finished_before_the_record(tmp_path: Path, mnist: str) -> None:
    """What is drawn beside Figure 3's methods is the record, or nothing."""
    leave_runs(mnist, tmp_path, {key: seeds for key, seeds in SOME.items() if key[1] != "record"})
    with contextlib.suppress(ConfigError):
        report_finished(mnist, tmp_path)
    figure = tmp_path / "adacomp-figure3.svg"
    assert not figure.exists() or "record" not in figure.read_text()


def test_the_committed_runs_are_continued(tmp_path: Path) -> None:
    """docs/results/adacomp.md says that the command goes on from them."""
    shutil.copytree(Path(__file__).parents[4] / "docs" / "results" / "adacomp" / "runs", tmp_path / "runs")
    data = "npz:mnist.npz"
    parts = [
        *experiments.figure_3(data, experiments.FULL, experiments.FIGURE_3),
        *experiments.table_2(data, 60_000, experiments.FULL, experiments.ADACOMP),
        *experiments.figure_4(data, 60_000, experiments.FULL, experiments.ADACOMP),
        *experiments.record(data, experiments.FULL),
    ]
    for part in parts:
        assert len(sweep(part.jobs(tmp_path, (0,)))) == 1, part.name
