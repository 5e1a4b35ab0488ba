"""The paper's settings."""

import json
from pathlib import Path

import pytest

from edgeflock.devices.emulation.config import FleetFile, headcount
from edgeflock.papers.adacomp import experiments
from edgeflock.papers.adacomp.experiments import FULL, QUICK, AdacompScale
from edgeflock.papers.adacomp.report import PAPER
from edgeflock.shared.settings.presets import PRESETS
from tests.library.papers.adacomp.runs import DATA, SAMPLES, everything


def facts(file: FleetFile) -> tuple[str, float, str]:
    return file.coordination.rule, file.compression.select, file.compression.values


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_what_all_experiments_share(scale: AdacompScale) -> None:
    """Batches of 10 on MNIST, workers in random order, and nobody is refused for a setting of ours."""
    for experiment in [*everything(scale), *experiments.grid(DATA, scale)]:
        file = experiment.file
        assert file.local.batch == 10
        assert file.local.steps == 1
        assert (file.model.data, file.fleet.data) == (DATA, DATA)
        assert {kind.timing for kind in file.devices.values()} == {"exponential"}
        assert not any(kind.session_s or kind.rate != "0" or kind.profile for kind in file.devices.values())
        assert 1 <= file.fleet.evaluate_every <= file.end.updates
        assert file.coordination.learning_rate == experiment.method.rate
        # A worker pushes once in 200 updates on average; ten times as long is beyond chance.
        assert file.coordination.window >= 10 * file.fleet.devices


def test_the_paper_s_length() -> None:
    experiments = everything(FULL)
    assert {one.file.end.updates for one in experiments if one.part != "record"} == {250_000}
    assert len(FULL.seeds) == 3
    assert {one.file.end.updates for one in experiments if one.part == "record"} == {40_000}


def test_devices_are_sent_the_model_itself() -> None:
    """As in the paper, and as the record's figures were measured."""
    assert {one.file.downlink.mode for one in everything(FULL)} == {"exact"}


def test_figure_3_is_the_paper_s_methods_and_a_smaller_c() -> None:
    found = {one.name: one.file for one in experiments.figure_3(DATA, FULL, experiments.FIGURE_3)}
    assert {name: facts(file) for name, file in found.items()} == {
        "ASGD": ("tau", 1.0, "f32"),
        "Comp-ASGD c=0.1": ("tau", 0.1, "f32"),
        "Comp-ASGD c=0.01": ("tau", 0.01, "f32"),
        "AdaComp c=0.1": ("adacomp", 0.1, "f32"),
        "AdaComp c=0.01": ("adacomp", 0.01, "f32"),
        "AdaComp c=0.001": ("adacomp", 0.001, "f32"),
    }
    for file in found.values():
        assert (file.fleet.devices, file.fleet.samples) == (200, 0)
        assert file.model.module == "edgeflock.client.zoo:PaperCNN"
        assert (file.compression.feedback, file.compression.balance) == (0, 1)
        assert (file.coordination.average, file.fleet.evaluate_unaveraged) == (8, True)
        assert (file.compression.indices, file.downlink.mode) == ("golomb", "exact")
        assert list(file.devices) == ["all"]
        assert file.devices["all"].crash == 0


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_in_table_2_half_the_workers_crash(scale: AdacompScale) -> None:
    """Each of U pushes ends a worker with probability p: p U of the 200 are gone at the end."""
    found = list(experiments.table_2(DATA, SAMPLES, scale, experiments.ADACOMP))
    assert [(one.file.fleet.devices, one.file.fleet.samples) for one in found] == [
        (200, 60_000),
        (200, 60_000),
        (200, 12_000),
        (200, 12_000),
        (100, 6_000),
    ]
    crashes = [one.file.devices["all"].crash * one.file.end.updates for one in found]
    assert crashes == pytest.approx([0, 100, 0, 100, 0])
    for one in found:
        assert facts(one.file) == ("adacomp", 0.01, "f32")
        assert one.file.model.module == "edgeflock.client.zoo:PaperMLP"


@pytest.mark.parametrize("scale", [FULL, QUICK], ids=["full", "quick"])
def test_figure_4_s_classes(scale: AdacompScale) -> None:
    """30, 40 and 30% of the workers, at rates of 100 : 10 : 1; and all of one kind, on the same data."""
    found = list(experiments.figure_4(DATA, SAMPLES, scale, experiments.ADACOMP))
    assert [one.file.fleet.samples for one in found] == [0, 0, 12_000, 12_000]
    for one in found:
        assert facts(one.file) == ("adacomp", 0.01, "f32")
        assert one.file.end.updates == scale.classes_updates
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


def test_the_record_is_the_preset() -> None:
    """But with the paper's one step an update, and the exact downlink."""
    (ours,) = experiments.record(DATA, FULL)
    settings = ours.file.model_dump()
    assert (ours.file.local.steps, ours.file.downlink.mode) == (1, "exact")
    for path, value in (PRESETS["low-bandwidth"] | {"local.steps": 1}).items():
        section, _, key = path.partition(".")
        assert settings[section][key] == value
    assert {one.file.end.updates for one in experiments.record(DATA, QUICK)} == {20_000}


def test_the_grid_is_every_method_at_every_rate() -> None:
    found = list(experiments.grid(DATA, FULL))
    tried = {(*facts(one.file), one.file.coordination.learning_rate) for one in found}
    assert len(found) == len(tried) == 24
    assert {one.file.end.updates for one in found} == {FULL.updates}
    assert {one.method.rate for one in found} == {0.05, 0.1, 0.2, 0.4}


def test_the_names_are_those_that_the_paper_s_numbers_have() -> None:
    named: dict[str, set[str]] = {}
    for one in everything(FULL):
        named.setdefault(one.part, set()).add(one.name)
    named["figure 3"].remove("AdaComp c=0.001")  # of which the paper says only that it is worse
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
