"""Data of several inputs: arrays by name, of as many samples each."""

from pathlib import Path

import numpy as np
import pytest

from edgeflock.shared.data.datasets import concatenate, deal, load
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Fields, arrays_by_name, concatenate_inputs, rows


def archive(path: Path, **arrays: object) -> str:
    np.savez(path / "data.npz", **arrays)  # type: ignore[arg-type]
    return f"npz:{path / 'data.npz'}"


def test_an_archive_has_a_field_for_each_name(tmp_path: Path) -> None:
    """Numbers as float32, images from 0 to 1, whole numbers and truths as they are."""
    uri = archive(
        tmp_path,
        **{
            "x_train.size": np.arange(6.0).reshape(3, 2),
            "x_train.town": np.array([4, 2, 0], np.int32),
            "x_train.open": np.array([True, False, True]),
            "x_train.photo": np.full((3, 4, 4), 255, np.uint8),
        },
        y_train=np.array([0.5, 1.5, 2.5]),
    )
    data = load(uri, "train")
    assert isinstance(data.x, Fields)
    assert {name: (array.dtype.name, array.shape) for name, array in data.x.items()} == {
        "size": ("float32", (3, 2)),
        "town": ("int64", (3,)),
        "open": ("int64", (3,)),
        "photo": ("float32", (3, 1, 4, 4)),
    }
    assert data.x["photo"].max() == 1
    assert len(data) == 3


def test_shares_are_dealt_as_of_one_input(tmp_path: Path) -> None:
    uri = archive(
        tmp_path, **{"x_train.a": np.arange(10.0), "x_train.b": np.arange(10) * 2}, y_train=np.arange(10)
    )
    whole = load(uri, "train")
    parts = deal(whole, 3)
    for part in parts:
        np.testing.assert_array_equal(part.x["a"], part.y)
        np.testing.assert_array_equal(part.x["b"], 2 * part.y)
    together = concatenate(parts)
    assert sorted(together.y.tolist()) == list(range(10))
    np.testing.assert_array_equal(together.x["a"], together.y)
    np.testing.assert_array_equal(load(f"{uri}?part=1/3", "train").y, parts[0].y)


def test_fields_of_other_lengths_are_refused(tmp_path: Path) -> None:
    uri = archive(tmp_path, **{"x_train.a": np.zeros(3), "x_train.b": np.zeros(2)}, y_train=np.zeros(3))
    with pytest.raises(ConfigError, match="x_train.b has 2 samples, y_train 3"):
        load(uri, "train")
    uri = archive(tmp_path, **{"x_train.a": np.zeros(3)}, y_train=np.zeros(2))
    with pytest.raises(ConfigError, match=r"x_train.a has 3 samples|has 3 samples, .* 2"):
        load(uri, "train")


def test_rows_and_names() -> None:
    fields = Fields({"a": np.arange(4), "b": np.arange(8).reshape(4, 2)})
    some = rows(fields, np.array([3, 1]))
    assert some["b"].tolist() == [[6, 7], [2, 3]]
    assert concatenate_inputs([some, some])["a"].tolist() == [3, 1, 3, 1]
    assert [*arrays_by_name(fields)] == ["x/a", "x/b"]
    lone = np.zeros((2, 3), np.float32)
    assert [*arrays_by_name(lone)] == ["x"]
    assert rows(lone, slice(1)).shape == (1, 3)
