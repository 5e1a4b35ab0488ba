"""Missing values, categories and targets of tables: what the server says, and what a device makes of it."""

import logging
from pathlib import Path

import numpy as np
import pytest

from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import MAX_CATEGORIES, Description

HELD_OUT = "warm,mode,watts\n1,off,10\n3,on,20\n5,auto,60\n"
"""Means 3 and 30; deviations the roots of 8/3 and of 1400/3."""


def csv(path: Path, text: str, query: str = "?label=watts&targets=numbers") -> str:
    path.write_text(text)
    return f"csv:{path}{query}"


@pytest.fixture
def described(tmp_path: Path) -> Description:
    return datasets.open_stored(
        csv(tmp_path / "held_out.csv", HELD_OUT), "test", scales_targets=True
    ).description


def test_a_column_of_texts_is_an_input_for_each_category(tmp_path: Path, described: Description) -> None:
    data = datasets.load(csv(tmp_path / "a.csv", HELD_OUT), "test", scales_targets=True)
    assert described.columns == ("warm", "mode")
    assert described.categories == ((), ("auto", "off", "on"))
    assert described.inputs == 4
    assert data.x[:, 1:].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert data.x[:, 0] == pytest.approx([-np.sqrt(1.5), 0, np.sqrt(1.5)])


def test_targets_are_scaled_for_a_loss_of_distances_alone(tmp_path: Path, described: Description) -> None:
    uri = csv(tmp_path / "a.csv", HELD_OUT)
    assert described.target == pytest.approx((30, np.sqrt(1400 / 3)))
    data = datasets.load(uri, "train", described)
    assert data.y == pytest.approx((np.array([10, 20, 60]) - 30) / np.sqrt(1400 / 3))
    assert data.y.dtype == np.float32
    assert datasets.load(uri, "test").y.tolist() == [10, 20, 60]
    unscaled = datasets.load(f"{uri}&scale=none&x=warm", "test", scales_targets=True)
    assert unscaled.y.tolist() == [10, 20, 60]
    assert unscaled.description.target == ()


def test_targets_that_are_all_alike_keep_their_unit(tmp_path: Path) -> None:
    uri = csv(tmp_path / "a.csv", "warm,watts\n1,7\n2,7\n")
    assert datasets.load(uri, "test", scales_targets=True).description.target == (7, 1)


MINE = "mode,warm,watts\non,1,10\n,3,10\nturbo,,10\noff,NA,\n"
"""Line 3 lacks a category, line 4 has one that is unknown and lacks a number, line 5 lacks the label."""


def test_what_is_missing_is_the_runs_mean_and_an_unknown_category_is_none(
    tmp_path: Path, described: Description, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    data = datasets.load(csv(tmp_path / "mine.csv", MINE), "train", described)
    assert data.x[:, 0] == pytest.approx([-np.sqrt(1.5), 0, 0])
    assert data.x[:, 1:].tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    (said,) = (record.getMessage() for record in caplog.records)
    assert "rows without a label, left out: 1; 2 of 3 rows lack a value, the first is line 3" in said
    assert "(warm 1, mode 2); mode is 'turbo' in line 4, which is none of the run's auto, off, on" in said
    assert "&missing=drop leaves such rows out" in said


def test_rows_with_gaps_are_left_out(
    tmp_path: Path, described: Description, caplog: pytest.LogCaptureFixture
) -> None:
    uri = csv(tmp_path / "mine.csv", MINE, "?label=watts&targets=numbers&missing=drop")
    data = datasets.load(uri, "train", described)
    assert data.x[:, 1:].tolist() == [[0, 0, 1]]
    assert "2 of 3 rows lack a value" in caplog.text
    assert "left out (missing=drop)" in caplog.text
    with pytest.raises(ConfigError, match=r"every row \(1\) lacks a value; &missing=mean keeps them"):
        datasets.load(
            csv(tmp_path / "n.csv", "mode,warm,watts\n,3,1\n", uri[uri.index("?") :]), "train", described
        )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "on,,10",
            "line 2: warm is empty or no finite number; fill it in, remove the row, or add &missing=drop",
        ),
        (",1,10", "line 2: mode is missing, and the run's categories are auto, off, on; correct it"),
        ("turbo,1,10", "line 2: mode is 'turbo', and the run's categories are auto, off, on; correct it"),
        ("on,1,", "line 2: the label is empty"),
    ],
)
def test_a_gap_is_an_error_where_that_is_wanted(
    tmp_path: Path, described: Description, row: str, message: str
) -> None:
    uri = csv(tmp_path / "e.csv", f"mode,warm,watts\n{row}\n", "?label=watts&targets=numbers&missing=error")
    with pytest.raises(ConfigError, match=message):
        datasets.load(uri, "train", described)


def test_a_text_among_the_runs_numbers_is_no_gap(tmp_path: Path, described: Description) -> None:
    uri = csv(tmp_path / "t.csv", "mode,warm,watts\non,1,10\non,hot,10\n")
    for policy in ("mean", "drop"):
        with pytest.raises(
            ConfigError,
            match="line 3: warm is 'hot', not a number; .*empty .missing., or remove",
        ):
            datasets.load(f"{uri}&missing={policy}", "train", described)


@pytest.mark.parametrize("label", ["", "NaN", "NA", "null", "?"])
def test_a_label_that_is_missing_makes_no_numbers_of_classes(tmp_path: Path, label: str) -> None:
    data = datasets.load(csv(tmp_path / "c.csv", f"a,y\n1,0\n2,{label}\n3,1\n", "?label=y"), "test")
    assert data.y.tolist() == [0, 1]
    assert data.y.dtype == np.int64


@pytest.mark.parametrize("name", ["none", "-", "null hypothesis"])
def test_names_that_sound_like_nothing_are_categories_and_classes(tmp_path: Path, name: str) -> None:
    text = f"mode,y\n{name},{name}\non,on\n"
    data = datasets.load(csv(tmp_path / "n.csv", text, "?label=y"), "test")
    assert data.description.categories == (tuple(sorted((name, "on"))),)
    assert data.description.labels == tuple(sorted((name, "on")))


def test_categories_are_not_many(tmp_path: Path) -> None:
    rows = "".join(f"n{row % (MAX_CATEGORIES + 1)},{row},0\n" for row in range(1000))
    with pytest.raises(ConfigError, match=r"site holds 101 different texts in 1,000 rows, .* 100 at most"):
        datasets.load(csv(tmp_path / "m.csv", f"site,a,y\n{rows}", "?label=y"), "test")


def test_a_parquet_file_has_gaps_and_categories_as_the_csv_has(
    tmp_path: Path, described: Description
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "mode": ["on", None, "turbo", "off"],
        "warm": [1.0, 3.0, None, None],
        "watts": [10, 10, 10, None],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "mine.parquet")
    mine = datasets.load(f"parquet:{tmp_path}/mine.parquet?label=watts&targets=numbers", "train", described)
    same = datasets.load(csv(tmp_path / "mine.csv", MINE), "train", described)
    assert mine.x.tobytes() == same.x.tobytes()
    assert mine.y.tobytes() == same.y.tobytes()
    with pytest.raises(ConfigError, match="row 4: the label is empty"):
        datasets.load(
            f"parquet:{tmp_path}/mine.parquet?label=watts&missing=error&targets=numbers",
            *("train", described),
        )


def test_an_array_without_names_has_no_categories(tmp_path: Path, described: Description) -> None:
    np.savez(tmp_path / "a.npz", x_train=np.zeros((3, 4), np.float32), y_train=np.zeros(3, np.float32))
    with pytest.raises(ConfigError, match="has no names of columns, but the run has columns of categories"):
        datasets.load(f"npz:{tmp_path}/a.npz", "train", described)
