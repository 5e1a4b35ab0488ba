"""The whole reproduction, with runs that are made up; what is asked for; and the words' data."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeflock.papers import reproduce
from edgeflock.papers.easgd import settings
from edgeflock.papers.easgd.reproduce import make_digits, make_images, make_words, reproduce_easgd
from edgeflock.papers.easgd.settings import EASGD, METHODS, QUICK, STAGGERED, SYNC, TASKS
from edgeflock.papers.reproduce import Reproduction
from edgeflock.results.sweep import Job
from edgeflock.shared.errors import ConfigError

DATA = {task.name: "digits:" for task in TASKS}
MLP, CNN, LSTM = TASKS


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Data sets of ten images and a few words, of which runs that are made up need none."""
    path = tmp_path / "data"
    path.mkdir()
    images, labels = np.zeros((10, 3, 32, 32), np.float32), np.arange(10)
    for name, shown in (("cifar10_jpgblob", images), ("mnist", images[:, 0, 2:30, 2:30].astype(np.uint8))):
        np.savez(path / f"{name}.npz", x_train=shown, y_train=labels, x_test=shown, y_test=labels)
    words = {f"{key}_{split}": np.arange(47) for key in ("w", "xpos") for split in ("train", "test")}
    np.savez(path / "pos_ud_ewt.npz", **words)  # type: ignore[arg-type]
    return str(path)


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """What was asked of sweep; every run takes two seconds, of staggered EASGD one."""
    asked: list[Job] = []

    def sweep(jobs: Sequence[Job]) -> None:
        asked.extend(jobs)
        for job in jobs:
            coordination = job.file.coordination
            fast = coordination.mode == "elastic" and coordination.chunk > 0
            row = {"updates": 9, "loss": 1.0, "accuracy": 0.5, "ingress": 10, "egress": 20}
            last = {"seconds": 1.0 if fast else 2.0, "accuracy": 0.6 + 0.001 * job.seed * fast}
            rows = [row | {"seconds": 0.5}, row | last]
            end = {"ended": "complete", "seed": job.seed, "classes": {"node": {"samples": 480}}}
            job.directory.mkdir(parents=True, exist_ok=True)
            job.path.write_text("".join(json.dumps(line) + "\n" for line in (*rows, end)))

    monkeypatch.setattr(reproduce, "sweep", sweep)
    return asked


def run(folder: str, out: Path, *, finished: bool = False, seeds: int = 0) -> None:
    reproduce_easgd(Reproduction("this", out, folder, quick=True, seeds=seeds, finished=finished))


@pytest.mark.slow
def test_the_whole_reproduction(folder: str, tmp_path: Path, swept: list[Job]) -> None:
    out = tmp_path / "out"
    run(folder, out)
    summary = json.loads((out / "easgd.json").read_text())
    assert len({job.path for job in swept}) == len(TASKS) * len(METHODS) * 4
    for task in TASKS:
        measured = summary["tasks"][task.name]
        assert measured["throughput"]["10 Mbps"] == {
            method.name: 480.0 if method is STAGGERED else 240.0 for method in METHODS
        }
        assert measured["gain"] == {"1 Gbps": 1.0, "100 Mbps": 1.0, "10 Mbps": 1.0}
        assert measured["accuracy"][SYNC.name]["last"] == 0.6
    text = (out / "easgd.md").read_text()
    assert "| LSTM | 1 Gbps | 240 | 240 | 480 | 240 | +100.0% | +8.0% |" in text
    assert "| MLP | EASGD | 1 | 60.00% | 55.00% | +0.00 | about -1 | 2.0 s |" in text
    assert "CIFAR-10 stands in for SVHN" in text
    for name in ("easgd-figure2", "easgd-figure3"):
        assert (out / f"{name}.png").stat().st_size > 10_000
        assert (out / f"{name}.svg").exists()


@pytest.mark.slow
def test_several_seeds_are_of_the_two_that_are_to_be_equal(
    folder: str, tmp_path: Path, swept: list[Job]
) -> None:
    out = tmp_path / "out"
    run(folder, out, seeds=3)
    assert {job.seed for job in swept if job.file.coordination.mode == "rounds"} == {0}
    summary = json.loads((out / "easgd.json").read_text())
    for task in TASKS:
        measured = summary["tasks"][task.name]
        assert measured["accuracy"][STAGGERED.name]["seeds"] == [0, 1, 2]
        assert measured["staggered_over_easgd"]["last"] == pytest.approx([0.0, 0.1, 0.2])
        assert measured["staggered_over_easgd"]["last_five"] == pytest.approx([0.0, 0.05, 0.1])
    assert (
        "| LSTM | +0.00, +0.10, +0.20 | +0.10 | +0.00, +0.05, +0.10 | +0.05 |"
        in (out / "easgd.md").read_text()
    )


def test_nothing_finished_is_nothing_to_report(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run has ended yet"):
        run(folder, tmp_path / "out", finished=True)


def test_nodes_take_as_many_steps_whatever_the_method() -> None:
    assert settings.updates_of(MLP, SYNC, 40) == 3 * 40
    assert settings.updates_of(MLP, EASGD, 40) == 3 * 2
    # 3,073,000 parameters are 31 chunks, 88,088 one, 26,878 one, three times 91,506 one each, 3,030 one.
    assert settings.updates_of(MLP, STAGGERED, 40) == 3 * 2 * 37


def test_every_fleet_is_as_the_paper_has_it() -> None:
    for one in [*settings.throughput(DATA, QUICK), *settings.accuracy(DATA, QUICK)]:
        assert (one.file.fleet.devices, one.file.local.batch) == (3, 16)
        assert one.file.downlink.mode == "exact"
        assert one.file.compression.values == "f32"
        if one.method in (EASGD, STAGGERED):
            assert (one.file.coordination.mode, one.file.local.steps) == ("elastic", 20)
            assert one.file.coordination.moving_rate == pytest.approx(0.3)
        else:
            assert one.file.coordination.mode == "rounds"


def test_words_are_cut_into_windows(folder: str, tmp_path: Path) -> None:
    make_words(Path(folder) / "pos_ud_ewt.npz", tmp_path / "words.npz", 1)
    with np.load(tmp_path / "words.npz") as archive:
        assert archive["x_train"].shape == archive["y_train"].shape == (2, 20)
        assert archive["x_test"].shape == archive["y_test"].shape == (1, 20)
        assert archive["x_train"].ravel().tolist() == list(range(40))


def test_images_are_what_they_were(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (10, 3, 2, 2)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x_train=images, y_train=np.arange(10), x_test=images, y_test=np.arange(10))
    make_images(tmp_path / "a.npz", tmp_path / "b.npz", 4)
    with np.load(tmp_path / "b.npz") as archive:
        assert archive["x_train"].tolist() == images.tolist()
        assert archive["x_test"].tolist() == images[:4].tolist()
        assert archive["y_test"].tolist() == [0, 1, 2, 3]


def test_digits_are_framed_in_three_colours(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(1, 256, (10, 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x_train=images, y_train=np.arange(10), x_test=images, y_test=np.arange(10))
    make_digits(tmp_path / "a.npz", tmp_path / "b.npz", 4)
    with np.load(tmp_path / "b.npz") as archive:
        assert archive["x_train"].shape == (10, 3, 32, 32)
        assert archive["x_train"][:, 2, 2:30, 2:30].tolist() == images.tolist()
        assert archive["x_test"].sum() == 3 * images[:4].sum()


def test_words_of_another_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        make_words(tmp_path / "none.npz", tmp_path / "words.npz", 0)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ConfigError, match="has no array w_train"):
        make_words(tmp_path / "other.npz", tmp_path / "words.npz", 0)
