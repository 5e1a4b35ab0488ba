"""Samples to predict: read as the run reads them, without labels, and each is known again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.shared.data.unlabelled import read
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields

DATA = Description(("warm", "mode"), (20.0, 0.0), (2.0, 1.0), ("cat", "dog"), categories=((), ("off", "on")))


def test_a_table_keeps_its_columns_and_is_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("id,mode,warm\na,on,24\n\nb,,\nc,odd,16\n")
    samples = read(f"csv:{path}", DATA, None)
    assert samples.count == 3
    assert samples.columns == ("id", "mode", "warm")
    assert [*samples.rows()] == [("a", "on", "24"), ("b", "", ""), ("c", "odd", "16")]
    assert [*samples.rows()] == [*samples.rows()], "they can be read again"
    assert samples.x.tolist() == [[2, 0, 1], [0, 0, 0], [-2, 0, 0]], (
        "missing: the mean, none of the categories"
    )


def test_other_separators(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("warm;mode\n24,5;on\n")
    samples = read(f"csv:{path}?sep=;&decimal=comma", DATA, None)
    assert samples.x.tolist() == [[2.25, 0, 1]]
    assert [*samples.rows()] == [("24,5", "on")]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "new.parquet"
    parquet.write_table(pyarrow.table({"mode": ["on", None], "warm": [24.0, 20.0]}), path)
    samples = read(f"parquet:{path}", DATA, None)
    assert samples.x.tolist() == [[2, 0, 1], [0, 0, 0]]
    assert [*samples.rows()] == [("on", "24.0"), ("", "20.0")]


def test_images_are_known_by_their_files(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "sub").mkdir()
    for name, grey in (("b.png", 255), ("sub/a.png", 0)):
        image.new("L", (4, 4), grey).save(tmp_path / name)
    samples = read(f"images:{tmp_path}", None, (1, 2, 2))
    assert [*samples.rows()] == [("b.png",), ("sub/a.png",)]
    assert samples.x[slice(0, 2)].mean(axis=(1, 2, 3)).tolist() == [1, 0]


def test_archives_and_arrays(tmp_path: Path) -> None:
    path = tmp_path / "new.npz"
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(path, x=x)
    samples = read(f"npz:{path}", None, (2,))
    assert samples.x.tolist() == x.tolist()
    assert [*samples.rows()] == [("0",), ("1",), ("2",)]
    fields_of: dict[str, Any] = {"x_test.a": x, "x_test.b": np.array([1, 2, 3])}
    np.savez(path, **fields_of)
    fields = read(f"npz:{path}", None, None)
    assert isinstance(fields.x, Fields)
    assert fields.count == 3
    assert read(x, None, (2,)).x.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("csv:{path}/nothing.csv", "there is no such file"),
        ("csv:{path}/new.csv?lable=x", "option 'lable' is unknown"),
        ("csv:{path}/other.csv", "has no column 'warm'|warm"),
        ("npz:{path}/nothing.npz", "there is no such file"),
        ("npz:{path}/new.csv", "is no readable np.savez archive"),
        ("images:{path}/none", "there is no such file"),
        ("images:{path}", "there are no images"),
        ("mqtt://host/topic", "known are digits"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, data: str, says: str) -> None:
    (tmp_path / "new.csv").write_text("warm,mode\n1,on\n")
    (tmp_path / "other.csv").write_text("cold,mode\n1,on\n")
    with pytest.raises(ConfigError, match=says):
        read(data.format(path=tmp_path), DATA, None)


def test_a_table_is_for_models_of_tables(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the model was not trained on a table"):
        read(f"csv:{tmp_path}/new.csv", None, (1, 8, 8))
