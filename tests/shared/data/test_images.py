"""Folders of images, a folder a class."""

from pathlib import Path

import numpy as np
import pytest

from edgeflock.shared.data import datasets
from edgeflock.shared.data.fitting import fit
from edgeflock.shared.errors import ConfigError

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four black cats, two white dogs, of different sizes."""
    for name, count, value in (("cat", 4, 0), ("dog", 2, 255)):
        (tmp_path / name).mkdir()
        for number in range(count):
            Image.new("RGB", (20 + number, 10), (value,) * 3).save(tmp_path / name / f"{number}.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    return tmp_path


def test_images_are_resized_to_one_size_and_classes_are_folders(folder: Path) -> None:
    data = datasets.load(f"images:{folder}?size=8", "test")
    assert data.x.shape == (6, 3, 8, 8)
    assert data.x[0].max() == 0
    assert data.x[-1].min() == 1
    assert data.y.tolist() == [0, 0, 0, 0, 1, 1]
    assert data.description.labels == ("cat", "dog")


def test_a_device_takes_the_size_of_the_run(folder: Path) -> None:
    raw = datasets.read(f"images:{folder}?part=1/2", "train")
    described = datasets.open_stored(f"images:{folder}?size=8", "test").description
    data = fit(raw, described, (1, 6, 5))
    assert data.x[:2].shape == (2, 1, 6, 5)
    with pytest.raises(ConfigError, match=r"samples of the run have the shape \[4\]"):
        fit(raw, described, (4,))


def test_images_are_read_when_they_are_asked_for(folder: Path) -> None:
    data = datasets.open_stored(f"images:{folder}?size=4", "train")
    for file in folder.glob("cat/*.png"):
        file.unlink()
    assert data.x[np.array([4, 5])].min() == 1
    with pytest.raises(ConfigError, match=r"cat/0.png is no readable image: .*replace or remove it"):
        data.x[:1]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?size=big", "size=big must be a number"),
        ("?channels=2", "channels=2 must be 1 or 3"),
        ("?colour=1", "option 'colour' is unknown"),
    ],
)
def test_options_that_are_none(folder: Path, query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        datasets.load(f"images:{folder}{query}", "train")


def test_a_folder_without_classes_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no images; there must be a folder for each class"):
        datasets.load(f"images:{tmp_path}", "train")
    with pytest.raises(ConfigError, match="there is no such file"):
        datasets.load(f"images:{tmp_path}/nowhere", "train")


def test_a_label_that_the_run_lacks_is_told_by_its_file(folder: Path) -> None:
    described = datasets.open_stored(f"images:{folder}", "test").description
    (folder / "owl").mkdir()
    Image.new("L", (3, 3)).save(folder / "owl" / "1.jpg")
    with pytest.raises(
        ConfigError, match=r"owl/1.jpg: the label is 'owl', and the run's classes are cat, dog"
    ):
        datasets.load(f"images:{folder}", "train", described)
