"""The reproduction of AdaComp: the paper's settings, and arithmetic over runs made by hand."""

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from edgeflock.devices.fleet_config import FleetFile, headcount
from edgeflock.devices.outcomes import Outcome, Setting
from edgeflock.devices.papers import reproduce
from edgeflock.devices.papers.adacomp import experiments
from edgeflock.devices.papers.adacomp.experiments import FULL, QUICK, Scale
from edgeflock.devices.papers.adacomp.report import PAPER, report
from edgeflock.devices.papers.adacomp.reproduce import best_rates, reproduce_adacomp
from edgeflock.devices.papers.adacomp.results import summarise
from edgeflock.devices.papers.reproduce import Experiment, Measured, Results
from edgeflock.devices.sweep import Job
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.presets import PRESETS
from tests.devices.commands.test_cli import edgeflock

DATA = "npz:mnist.npz"
SAMPLES = 60_000

# The paper's settings


def everything(scale: Scale) -> list[Experiment]:
    return [
        *experiments.record(DATA, scale),
        *experiments.figure_3(DATA, scale, experiments.FIGURE_3),
        *experiments.table_2(DATA, SAMPLES, scale, experiments.ADACOMP),
        *experiments.figure_4(DATA, SAMPLES, scale, experiments.ADACOMP),
    ]


def facts(file: FleetFile) -> tuple[str, float, str]:
    return file.coordination.rule, file.compression.select, file.compression.values


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_what_all_experiments_share(scale: Scale) -> None:
    """Batches of 10 on MNIST, workers in random order, and nobody is refused for a setting of ours."""
    for experiment in [*everything(scale), *experiments.grid(DATA, scale)]:
        file = experiment.file
        assert file.run.batch == 10
        assert file.run.local_steps == 1
        assert (file.model.data, file.fleet.data) == (DATA, DATA)
        assert {kind.timing for kind in file.devices.values()} == {"exponential"}
        assert not any(kind.session_s or kind.rate != "0" or kind.profile for kind in file.devices.values())
        assert 1 <= file.fleet.evaluate_every <= file.run.updates
        assert file.coordination.learning_rate == experiment.method.rate
        # A worker pushes once in 200 updates on average; ten times as long is beyond chance.
        assert file.coordination.window >= 10 * file.fleet.devices


def test_the_paper_s_length() -> None:
    experiments = everything(FULL)
    assert {one.file.run.updates for one in experiments if one.part != "record"} == {250_000}
    assert len(FULL.seeds) == 3
    assert {one.file.run.updates for one in experiments if one.part == "record"} == {40_000}


def test_figure_3_is_five_methods() -> None:
    found = {one.name: one.file for one in experiments.figure_3(DATA, FULL, experiments.FIGURE_3)}
    assert {name: facts(file) for name, file in found.items()} == {
        "ASGD": ("tau", 1.0, "f32"),
        "Comp-ASGD c=0.1": ("tau", 0.1, "f32"),
        "Comp-ASGD c=0.01": ("tau", 0.01, "f32"),
        "AdaComp c=0.1": ("adacomp", 0.1, "f32"),
        "AdaComp c=0.01": ("adacomp", 0.01, "f32"),
    }
    for file in found.values():
        assert (file.fleet.devices, file.fleet.samples) == (200, 0)
        assert file.model.module == "edgeflock.client.zoo:PaperCNN"
        assert (file.compression.feedback, file.compression.balance, file.coordination.average) == (0, 1, 0)
        assert list(file.devices) == ["all"]
        assert file.devices["all"].crash == 0


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_in_table_2_half_the_workers_crash(scale: Scale) -> None:
    """Each of U pushes ends a worker with probability p: p U of the 200 are gone at the end."""
    found = list(experiments.table_2(DATA, SAMPLES, scale, experiments.ADACOMP))
    assert [(one.file.fleet.devices, one.file.fleet.samples) for one in found] == [
        (200, 60_000),
        (200, 60_000),
        (200, 12_000),
        (200, 12_000),
        (100, 6_000),
    ]
    crashes = [one.file.devices["all"].crash * one.file.run.updates for one in found]
    assert crashes == pytest.approx([0, 100, 0, 100, 0])
    for one in found:
        assert facts(one.file) == ("adacomp", 0.01, "f32")
        assert one.file.model.module == "edgeflock.client.zoo:PaperMLP"


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_figure_4_s_classes(scale: Scale) -> None:
    """30, 40 and 30% of the workers, at rates of 100 : 10 : 1; and all of one kind, on the same data."""
    found = list(experiments.figure_4(DATA, SAMPLES, scale, experiments.ADACOMP))
    assert [one.file.fleet.samples for one in found] == [0, 0, 12_000, 12_000]
    for one in found:
        assert facts(one.file) == ("adacomp", 0.01, "f32")
        assert one.file.run.updates == scale.classes_updates
        assert one.file.model.module == "edgeflock.client.zoo:PaperCNN"
    for one in found[0::2]:
        assert list(one.file.devices) == ["all"]
    for one in found[1::2]:
        kinds = one.file.devices
        assert headcount(kinds, one.file.fleet.devices) == {"fast": 60, "medium": 80, "slow": 60}
        rates = [1000 / step for kind in kinds.values() if (step := kind.step_ms)]
        assert [rate / rates[-1] for rate in rates] == pytest.approx([100, 10, 1])
        # Updates of the whole fleet while a slow worker makes one: the window holds many times that.
        between = (60 * rates[0] + 80 * rates[1] + 60 * rates[2]) / rates[2]
        assert one.file.coordination.window > 9 * between


def test_the_record_is_the_preset_and_has_its_control() -> None:
    ours, control = experiments.record(DATA, FULL)
    settings = ours.file.model_dump()
    for path, value in PRESETS["record"].items():
        section, _, key = path.partition(".")
        assert settings[section][key] == value
    assert facts(control.file) == ("tau", 1.0, "f32")
    assert control.file.coordination.average == ours.file.coordination.average > 0
    assert {one.file.run.updates for one in experiments.record(DATA, QUICK)} == {20_000}


def test_the_grid_is_every_method_at_every_rate() -> None:
    found = list(experiments.grid(DATA, FULL))
    tried = {(*facts(one.file), one.file.coordination.learning_rate) for one in found}
    assert len(found) == len(tried) == 20
    assert {one.file.run.updates for one in found} == {FULL.updates}
    assert {one.method.rate for one in found} == {0.05, 0.1, 0.2, 0.4}


def test_the_names_are_those_that_the_paper_s_numbers_have() -> None:
    named: dict[str, set[str]] = {}
    for one in everything(FULL):
        named.setdefault(one.part, set()).add(one.name)
    assert {part: set(numbers) for part, numbers in PAPER.items()} == {
        part: names for part, names in named.items() if part != "record"
    }


def test_equal_settings_share_a_folder_and_others_do_not(tmp_path: Path) -> None:
    """Figure 4's one class on all images is Figure 3's AdaComp c=0.01."""
    folders: dict[Path, list[str]] = {}
    for one in everything(FULL):
        jobs = one.jobs(tmp_path, FULL.seeds)
        assert [job.seed for job in jobs] == [0, 1, 2]
        assert len({job.path for job in jobs}) == 3
        (folder,) = {job.directory for job in jobs}
        assert folder.parent == tmp_path / "runs"
        folders.setdefault(folder, []).append(f"{one.part}: {one.name}")
    shared = [names for names in folders.values() if len(names) > 1]
    assert shared == [["figure 3: AdaComp c=0.01", "figure 4: 60,000 images, one class"]]
    settings = {json.dumps(one.file.model_dump(exclude={"client"})) for one in everything(FULL)}
    assert len(folders) == len(settings)


def test_a_folder_depends_on_no_name_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [one.jobs(tmp_path, (0,))[0].path for one in everything(QUICK)]
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    assert [one.jobs(tmp_path, (0,))[0].path for one in everything(QUICK)] == before


# Arithmetic over runs made by hand


def run_of(*reached: tuple[int, float, int], seed: int = 0) -> Outcome:
    """A run with an evaluation for each (updates, accuracy, ingress)."""
    rows = [
        {
            "updates": updates,
            "seconds": updates / 10,
            "loss": 0.1,
            "accuracy": accuracy,
            "ingress": ingress,
            "egress": 1,
        }
        for updates, accuracy, ingress in reached
    ]
    return Outcome(rows, {"seed": seed, "ended": "complete"})


def measured(one: Experiment, *outcomes: Outcome) -> Measured:
    return Measured(one, Setting(one.name, outcomes))


def best_of(accuracy: float) -> Outcome:
    return run_of((10, accuracy / 2, 5), (20, accuracy, 10), (30, accuracy - 0.01, 15))


def test_the_best_rate_is_the_one_that_came_furthest() -> None:
    """At the end or before; the order in which they were tried does not matter."""
    best = dict(
        zip((method.name for method in experiments.FIGURE_3), (0.05, 0.2, 0.1, 0.05, 0.2), strict=True)
    )
    tried = [
        measured(one, best_of(0.9 if best[one.name.rpartition(" rate ")[0]] == one.method.rate else 0.8))
        for one in experiments.grid(DATA, FULL)
    ]
    for order in (tried, tried[::-1]):
        methods = best_rates(order)
        assert [(method.name, method.rate) for method in methods] == list(best.items())
        assert [method.settings for method in methods] == [method.settings for method in experiments.FIGURE_3]


# Two seeds each. Updates are those of the rows; 97% is reached at the second row or the third.
DENSE = (
    run_of((1000, 0.96, 800_000_000), (2000, 0.971, 1_600_000_000), (3000, 0.979, 2_400_000_000)),
    run_of((1000, 0.94, 800_000_000), (2000, 0.965, 1_600_000_000), (3000, 0.975, 2_400_000_000), seed=1),
)
SMALL = (
    run_of((1000, 0.951, 1_000_000), (2000, 0.972, 2_000_000), (3000, 0.985, 3_000_000)),
    run_of((1000, 0.952, 1_000_000), (2000, 0.973, 2_000_000), (3000, 0.981, 3_000_000), seed=1),
)
LARGE = (
    run_of((1000, 0.951, 9_000_000), (2000, 0.972, 18_000_000)),
    run_of((1000, 0.961, 9_000_000), (2000, 0.974, 18_000_000)),
)
SHORT = (
    run_of((1000, 0.951, 1000), (2000, 0.972, 2000)),
    run_of((1000, 0.951, 1000), (2000, 0.969, 2000)),
)


def results_of(dense: Sequence[Outcome], record: Sequence[Outcome]) -> Results:
    """Everything that a report needs: `dense` for ASGD, `record` for the record."""
    results: Results = {}
    for one in everything(QUICK):
        outcomes = {
            "ASGD": dense,
            "record": record,
            "AdaComp c=0.01": LARGE,
            "60,000 images, crashes, n=200": (best_of(0.9525),),
            "60,000 images, no crashes, n=200": (best_of(0.9650),),
        }.get(one.name, SHORT)
        results.setdefault(one.part, []).append(measured(one, *outcomes))
    return results


def summary_of(results: Results) -> dict[str, Any]:
    return summarise(results, DATA, "edgeflock reproduce adacomp --quick")


def test_the_reduction_is_dense_bytes_over_ours_at_97() -> None:
    """Dense: 1.6 and 2.4 GB; the record: 2 MB. Who gets there in one of two runs only does not count."""
    summary = summary_of(results_of(DENSE, SMALL))
    assert summary["best_at_97"] == "record"
    assert summary["reduction_at_97"] == pytest.approx(2_000_000_000 / 2_000_000)
    assert summary["figure3"]["ASGD"]["at"] == {
        "0.95": {"updates": 2000 - 500, "ingress": 1_200_000_000},
        "0.97": {"updates": 2500, "ingress": 2_000_000_000},
        "0.98": None,
    }
    assert summary["figure3"]["Comp-ASGD c=0.01"]["at"]["0.97"] is None
    assert summary["figure3"]["Comp-ASGD c=0.01"]["at"]["0.95"] == {"updates": 1000, "ingress": 1000}


def test_the_winner_may_be_any_of_figure_3() -> None:
    summary = summary_of(results_of(DENSE, SHORT))
    assert summary["best_at_97"] == "AdaComp c=0.01"
    assert summary["reduction_at_97"] == pytest.approx(2_000_000_000 / 18_000_000)


def test_there_is_no_reduction_if_dense_never_got_there() -> None:
    summary = summary_of(results_of(SHORT, SMALL))
    assert summary["reduction_at_97"] is None
    assert json.loads(json.dumps(summary))["reduction_at_97"] is None


def test_a_summary_says_what_was_run() -> None:
    summary = summary_of(results_of(DENSE, SMALL))
    assert set(summary) == set(
        "command date machine data final_accuracy reduction_at_97 best_at_97".split()
        + "record figure3 table2 figure4".split()
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
    assert set(summary["table2"]) == set(PAPER["table 2"])


def row_of(markdown: str, name: str) -> list[str]:
    """The cells of the row that begins with `name`."""
    (line,) = re.findall(rf"^\| {re.escape(name)} \|.*$", markdown, re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_report(tmp_path: Path) -> None:
    results = results_of(DENSE, SMALL)
    markdown = report(results, summary_of(results), tmp_path)
    assert "**1,000 times** less traffic than dense ASGD up to 97% (record" in markdown
    assert row_of(markdown, "ASGD") == [
        "2",
        "0.1",
        "97.70% (97.50% to 97.90%)",
        "97.85%",
        *("1,500", "2,500", "-"),
        *("1.2 GB", "2.0 GB", "-"),
    ]
    assert row_of(markdown, "record") == [
        "2",
        "0.1",
        "98.30% (98.10% to 98.50%)",
        "-",
        *("1,000", "2,000", "3,000"),
        *("1.0 MB", "2.0 MB", "3.0 MB"),
    ]
    assert row_of(markdown, "60,000 images, crashes, n=200") == ["1", "95.25%", "97.17%"]
    # 96.50% less 95.25%; and two equal ones.
    assert (
        "Loss, in points: 1.25 (60,000 images, no crashes, n=200 against 60,000 images, crashes, n=200); "
        "0.00 (12,000 images, no crashes, n=200 against 12,000 images, crashes, n=200).\n"
    ) in markdown
    for name in PAPER["table 2"] | PAPER["figure 4"]:
        assert len(row_of(markdown, name)) == 3
    for figure in ("adacomp-figure3", "adacomp-figure4"):
        assert f"({figure}.png)" in markdown
        assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{figure}.svg").read_text()
    svg = (tmp_path / "adacomp-figure3.svg").read_text()
    for method in experiments.FIGURE_3:
        assert svg.count(f">{method.name}<") == 2
    assert svg.count(">record<") == 1
    assert "mean and range over the seeds" in svg


def test_the_report_without_a_reduction(tmp_path: Path) -> None:
    results = results_of(SHORT, SMALL)
    markdown = report(results, summary_of(results), tmp_path)
    assert "Dense ASGD did not reach 97% in every run, so there is no ratio at 97%." in markdown
    assert "times** less" not in markdown


# The whole, with runs that are made up


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


def test_the_whole_reproduction(
    tmp_path: Path, mnist: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "results"
    reproduce_adacomp(
        mnist, out, quick=False, updates=0, seeds=2, grid=True, finished=False, command="this", as_json=True
    )
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
    assert len(grid) == 20
    # Sixteen settings, of which two are the same. First what the headline is made of, then seed by seed.
    assert [job.title for job in parts[:4]] == ["record: record", "figure 3: ASGD"] * 2
    assert [job.seed for job in parts] == [0, 0, 1, 1] + [0] * 13 + [1] * 13
    assert len({job.path for job in parts}) == 30


def test_quick_has_no_grid_and_one_seed(
    tmp_path: Path, mnist: str, swept: list[list[Job]], capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce_adacomp(
        mnist,
        tmp_path,
        quick=True,
        updates=300,
        seeds=0,
        grid=False,
        finished=False,
        command="",
        as_json=False,
    )
    assert capsys.readouterr().out.startswith("# AdaComp, reproduced\n")
    (parts,) = swept
    assert {(job.seed, job.file.run.updates) for job in parts} == {(0, 300)}
    (crash,) = {kind.crash for job in parts for kind in job.file.devices.values()} - {0}
    assert crash == pytest.approx(1 / 3)


def test_too_few_updates_are_refused(tmp_path: Path, mnist: str, swept: list[list[Job]]) -> None:
    for updates in (1, 200):
        with pytest.raises(ConfigError, match=f"--updates {updates} must be more than the 200 devices"):
            reproduce_adacomp(
                mnist,
                tmp_path / "out",
                quick=True,
                updates=updates,
                seeds=0,
                grid=False,
                finished=False,
                command="",
                as_json=True,
            )
    assert swept == []
    assert not (tmp_path / "out").exists()


def report_finished(mnist: str, out: Path, *, quick: bool = True) -> None:
    """With three seeds."""
    reproduce_adacomp(
        mnist, out, quick=quick, updates=0, seeds=3, grid=False, finished=True, command="this", as_json=False
    )


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
    left = {("record", "ASGD, averaged model") if key[1] == "record" else key: n for key, n in SOME.items()}
    leave_runs(mnist, tmp_path, left)
    with contextlib.suppress(ConfigError):
        report_finished(mnist, tmp_path)
    figure = tmp_path / "adacomp-figure3.svg"
    assert not figure.exists() or "averaged" not in figure.read_text()


# The command


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["hogwild"], ["'hogwild'", "known are adacomp and scadles"]),
        (["adacomp"], ["mnist.npz", "there is no such file"]),
        (["adacomp", "--finished"], ["mnist.npz", "there is no such file"]),
        (["adacomp", "--quick", "--data", "npz:nowhere.npz"], ["npz:nowhere.npz", "there is no such file"]),
        (["adacomp", "--data", "mnist"], ["data 'mnist'", "npz:"]),
        (["adacomp", "--updates", "7"], ["--updates 7"]),
        (["scadles", "--updates", "7"], ["--updates 7", "--quick"]),
        (["scadles"], ["cifar10_jpgblob.npz", "there is no such file"]),
        (["adacomp", "--seeds", "-1"], ["--seeds"]),
        ([], ["PAPER"]),
    ],
    ids=[
        "unknown paper",
        "no data",
        "no data to report on",
        "no such data",
        "no URI",
        "too short",
        "no updates there",
        "no folder of data",
        "seeds",
        "no paper",
    ],
)
def test_what_cannot_work_is_refused(
    arguments: list[str], named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEFLOCK_DATA", raising=False)
    done = edgeflock("reproduce", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in named:
        assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_data_are_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFLOCK_DATA", str(tmp_path / "elsewhere"))
    done = edgeflock("reproduce", "adacomp", cwd=tmp_path)
    assert done.returncode == 2
    assert f"npz:{tmp_path}/elsewhere/mnist.npz" in done.stderr
