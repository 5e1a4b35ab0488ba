"""Data of a function of one's own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError

MODULE = """
import numpy as np

class Rows:
    asked = []
    def __init__(self, rows): self.rows = rows
    def __len__(self): return len(self.rows)
    def __getitem__(self, number):
        self.asked.append(number)
        return self.rows[number]

def arrays(split, count="3"):
    return np.full((int(count), 2), 7 if split == "test" else 8), ["b", "a", "b"][: int(count)]

def lazy():
    return Rows([np.full((2, 2), 255, np.uint8)] * 3), np.array([0, 1, 2])

def ragged():
    return Rows([np.zeros(2), np.zeros(3)]), np.array([0, 1])

def broken():
    return Rows([np.zeros(2), np.full(2, np.nan)]), np.array([0, 1])

def failing():
    raise OSError("no disk")

def one():
    return np.zeros(3)

def uneven():
    return np.zeros((3, 2)), [1, 2]
"""


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "their_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("their_data", None)


def test_a_function_is_told_the_split_and_its_options() -> None:
    data = datasets.load("their_data:arrays?count=2", "test")
    assert data.x.tolist() == [[7, 7]] * 2
    assert data.y.tolist() == [1, 0]
    assert data.description.labels == ("a", "b")
    assert datasets.load("their_data:arrays?part=1/3", "train").x.tolist() == [[8, 8]]


def test_what_gives_samples_one_by_one_is_asked_for_those_that_are_wanted() -> None:
    data = datasets.open_stored("their_data:lazy", "train")
    rows = sys.modules["their_data"].Rows
    rows.asked.clear()
    assert data.x[np.array([2, 1])].tolist() == [[[[1, 1], [1, 1]]]] * 2
    assert rows.asked == [2, 1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("failing", "OSError: no disk"),
        ("one", r"returned a ndarray; it must return \(x, y\)"),
        ("uneven", "x has 3 samples and y 2"),
        ("ragged", r"x\[1\] has the shape \[3\], x\[0\] has \[2\]"),
        ("broken", r"x\[1\] holds NaN or infinity"),
        ("nothing", "has no attribute 'nothing'"),
        ("arrays?colour=1", "unexpected keyword argument 'colour'"),
    ],
)
def test_what_it_does_wrong_is_told(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        datasets.load(f"their_data:{name}", "train")


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 2)), np.array(["a", "b", None], object), "holds Python objects; store numbers or text"),
        (np.array([[1.0, 2], [3, np.nan]]), np.arange(2), r"x_train\[1\]: x\[1\] is nan"),
        (np.array([["1"], ["2"]]), np.arange(2), "x is of <U1, not of numbers"),
        (np.zeros((2, 1)), np.array([0, -3]), r"x_train\[1\]: the label is -3, and classes are 0, 1"),
        (np.zeros((2, 1)), np.array([0.5, np.inf]), r"x_train\[1\]: the label is empty or no finite number"),
        (np.zeros((2, 1)), np.array(3), "x_train has 2 samples, y_train no"),
    ],
)
def test_archives_say_which_sample_is_wrong(
    tmp_path: Path, x: np.ndarray, y: np.ndarray, message: str
) -> None:
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y)
    with pytest.raises(ConfigError, match=message) as caught:
        datasets.load(f"npz:{tmp_path}/data.npz", "train")
    assert "allow_pickle" not in str(caught.value)
