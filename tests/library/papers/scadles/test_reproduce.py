"""The whole reproduction, with runs that are made up."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeflock.papers import reproduce
from edgeflock.papers.reproduce import Reproduction, by_part
from edgeflock.papers.scadles import experiments
from edgeflock.papers.scadles.report import report
from edgeflock.papers.scadles.reproduce import reproduce_scadles
from edgeflock.papers.scadles.results import summarise
from edgeflock.papers.scadles.settings import BUFFERED, DISTRIBUTIONS, FULL, NOISY_MODELS, QUICK, TASKS
from edgeflock.results.sweep import Job
from edgeflock.shared.errors import ConfigError
from tests.library.papers.scadles.runs import ASKED, FOLDER, everything, made, measured, of_mnist


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Data sets of ten images, of which the runs that are made up need none."""
    path = tmp_path / "data"
    path.mkdir()
    for task in TASKS:
        images, labels = np.zeros((10, 1, 28, 28), np.float32), np.arange(10)
        np.savez(
            path / task.data.rpartition("/")[2], x_train=images, y_train=labels, x_test=images, y_test=labels
        )
    return str(path)


def leave(jobs: Sequence[Job]) -> None:
    """What runs of these leave."""
    for job in jobs:
        run = made((10, 0.2), (20, 0.6), (30, 0.99))
        job.directory.mkdir(parents=True, exist_ok=True)
        job.path.write_text("".join(json.dumps(line) + "\n" for line in (*run.rows, run.end)))


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[list[Job]]:
    """What was asked of sweep."""
    asked: list[list[Job]] = []

    def sweep(jobs: Sequence[Job]) -> None:
        asked.append(list(jobs))
        leave(jobs)

    monkeypatch.setattr(reproduce, "sweep", sweep)
    return asked


def reproduced(
    folder: str, out: Path, *, quick: bool = True, grid: bool = False, finished: bool = False
) -> None:
    reproduce_scadles(
        Reproduction("this", out, folder, quick=quick, seeds=1, grid=grid, finished=finished, as_json=True)
    )


@pytest.mark.slow
def test_the_whole_reproduction(
    tmp_path: Path, folder: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    reproduced(folder, out, quick=False, grid=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "scadles.json").read_text())
    grid, parts = swept
    assert {job.title.partition(",")[0] for job in grid} == {"grid"}
    assert len({job.path for job in parts}) == len(parts)
    markdown = (out / "scadles.md").read_text()
    for streams in DISTRIBUTIONS:
        assert len(printed["speed_up"]["MNIST"][streams]["speed_up"]) == 3
        assert markdown.count(f"| {streams} |") >= 4
    assert set(printed["buffers"]) == {f"{streams} {model}" for streams, model in BUFFERED}
    assert [len(runs) for runs in printed["asynchronous"].values()] == [16, 16]
    assert {name: set(streams) for name, streams in printed["noisy"].items()} == {
        name: {"S2", "S2'"} for name in NOISY_MODELS
    }
    for name in ("speedup-cifar-10", "speedup-mnist", "speedup-pairs-of-digits", "figure9", "async"):
        assert f"(scadles-{name}.png)" in markdown
        assert (out / f"scadles-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"scadles-{name}.svg").read_text()


@pytest.mark.slow
def test_quick_leaves_out_the_longest_parts(
    tmp_path: Path, folder: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    reproduced(folder, tmp_path / "out")
    printed = json.loads(capsys.readouterr().out)
    assert printed["noisy"] == {}
    assert list(printed["speed_up"]) == list(printed["non_iid"]) == ["CIFAR-10", "MNIST"]
    assert list(printed["asynchronous"]) == ["MNIST"]
    assert len(swept[0]) < 140


def test_finished_reports_what_there_is(tmp_path: Path, folder: str, swept: list[list[Job]]) -> None:
    with pytest.raises(ConfigError, match="no run of the speed-up has ended yet"):
        reproduced(folder, tmp_path / "out", finished=True)
    assert not (tmp_path / "out").exists()
    leave([one.jobs(tmp_path / "out", (0,))[0] for one in everything(QUICK, folder)[:2]])
    reproduced(folder, tmp_path / "out", finished=True)
    assert swept == []
    markdown = (tmp_path / "out" / "scadles.md").read_text()
    assert "Table VI" in markdown
    assert "Table IV" not in markdown


def test_missing_data_are_named_before_anything_runs(tmp_path: Path, swept: list[list[Job]]) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}/cifar10_jpgblob.npz.*no such file"):
        reproduced(str(tmp_path), tmp_path / "out")
    assert swept == []


def test_the_report_has_a_dash_for_what_was_not_reached(tmp_path: Path) -> None:
    runs = {"S1 DDL": made((10, 0.2)), "S1 ScaDLES": made((10, 0.2))}
    results = by_part(measured(of_mnist(experiments.speed_up(FOLDER, FULL, {})), runs))
    markdown = report(results, summarise(results, ASKED), tmp_path)
    assert "| S1 | 20/s |" in markdown
    assert "to no level" in markdown
    assert "| **-** |" in markdown
    assert "| S1 | DDL | - | - | - |" in markdown


def test_the_report_says_where_runs_stayed_and_what_went_both_ways(tmp_path: Path) -> None:
    collapsed, steady = made((10, 0.96), (20, 0.1)), made((10, 0.96), (20, 0.95))
    results = [
        *measured(
            of_mnist(experiments.speed_up(FOLDER, FULL, {})), {"S1 DDL": steady, "S1 ScaDLES": collapsed}
        ),
        *measured(of_mnist(experiments.compression(FOLDER, FULL, {})), {"CR 0.1, delta 0.2": collapsed}),
        *measured(of_mnist(experiments.non_iid(FOLDER, FULL, {})), {"(0.5, 0.5)": collapsed}),
        *measured(of_mnist(experiments.asynchronous(FOLDER, FULL, {})), {"S1 async": steady}),
    ]
    markdown = report(by_part(results), summarise(by_part(results), ASKED), tmp_path)
    # 100 bytes up and 50 down by second 10, and 160 updates of 10 parameters.
    assert "| S1 | ScaDLES | 100 B (64x) | 50 B (128x) | 150 B (85x) |" in markdown
    assert "96.00% / 95.00% / 95.50% | 96.00% / 10.00% / 53.00% | - | - |" in markdown
    assert "| 200 B (64x) | 100 B (128x) | 300 B (85x) | 96.00% | 10.00% | 53.00% | - |" in markdown
    assert "| MNIST | (0.5, 0.5) | 96.00% | 10.00% | 53.00% | - |" in markdown
    assert "| 20 | 96.00% / 10.00% / 53.00% | **96.00% / 95.00% / 95.50%** |" in markdown
    assert "| 300 B | 96.00% / 10.00% / 53.00% | **96.00% / 95.00% / 95.50%** |" in markdown
