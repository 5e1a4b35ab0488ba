"""What `edgeflock init` and `check` say of held-out data that are mostly a mistake."""

import re
from pathlib import Path

import numpy as np
import pytest

from edgeflock.projects.beginning import create_project
from edgeflock.projects.remarks import other_units, remarks
from edgeflock.shared.data import datasets
from edgeflock.shared.data.fitting import read_as
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.errors import ConfigError


def table(folder: Path, labels: list[str], warm: list[float] | None = None, rows: int = 30) -> str:
    lines = ["warm,mode,state"]
    for row in range(rows):
        number = 20 + row % 7 if warm is None else warm[row % len(warm)]
        lines.append(f"{number},{('eco', 'off')[row % 2]},{labels[row % len(labels)]}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return f"csv:{folder / 't.csv'}?label=state"


def held_out(uri: str) -> Dataset:
    return read_as(datasets.read(uri, "test"))[0]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["on", "off"], []),
        (["0", "1"], []),
        (["0.5", "7.25"], []),
        (["1", "2", "3"], ["3 different numbers up to 3; .* needs 4 outputs"]),
        (["100", "200"], ["needs 201 outputs.* add &targets=numbers"]),
        (["on"], ["the label is on in every held-out row, .* nothing to learn"]),
        (["7"], ["the label is 7 in every held-out row"]),
        (["0.0", "1.0"], ["only 0, 1 occur; if these are classes, add &targets=classes"]),
    ],
)
def test_labels_that_count_in_another_way(tmp_path: Path, labels: list[str], said: list[str]) -> None:
    found = list(remarks(held_out(table(tmp_path, labels))))
    assert len(found) == len(said), found
    assert all(re.search(pattern, line) for line, pattern in zip(found, said, strict=True)), found


def test_few_rows_and_a_column_that_does_not_vary(tmp_path: Path) -> None:
    few, constant = remarks(held_out(table(tmp_path, ["on", "off"], [21.5], rows=4)))
    assert "samples to evaluate on: 4, so that one is 25% of the accuracy" in few
    assert "warm is the same in every held-out row" in constant


def test_what_is_chosen_is_no_mistake(tmp_path: Path) -> None:
    assert not list(remarks(held_out(table(tmp_path, ["0.0", "1.0"])), chosen=True))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([19.0, 26.0, 31.0], 0),
        ([68.0, 77.0, 86.0], 1),  # Fahrenheit
        ([20000.0, 23000.0, 26000.0], 1),
        ([0.020, 0.023, 0.026], 1),
    ],
)
def test_a_column_in_another_unit(tmp_path: Path, numbers: list[float], said: int) -> None:
    evaluated = held_out(table(tmp_path, ["on", "off"]))
    (device := tmp_path / "device").mkdir()
    own = datasets.open_stored(table(device, ["on", "off"], numbers), "train", evaluated.description)
    assert isinstance(own.x, np.ndarray)
    found = list(other_units(evaluated, own.x))
    assert len(found) == said, found
    assert all(line.startswith("warm is ") and line.endswith("the unit the same?") for line in found)


def test_a_new_project_says_what_it_understood(tmp_path: Path) -> None:
    project = create_project(tmp_path / "it", table(tmp_path, ["1", "2"]))
    assert project.samples == "from warm, mode (categories: 2), the model predicts 3 classes"
    assert len(project.remarks) == 1
    assert "3 classes out" in project.files["model.py"]
    with pytest.raises(ConfigError, match="the label goes up to 1,700,000,000, .* add &targets=numbers"):
        create_project(tmp_path / "it", table(tmp_path, ["1", "1700000000"]))
