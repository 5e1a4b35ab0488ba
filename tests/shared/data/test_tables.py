"""Tables as data sets: columns by name, in the units of whoever holds out data, labels by name."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeflock.shared.data import datasets
from edgeflock.shared.data.fitting import describe, fit
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description

ERROR = "?label=animal&missing=error"
HELD_OUT = "age,height,animal\n10,1.0,cat\n20,2.0,dog\n30,3.0,cat\n40,2.0,dog\n"
SEMICOLONS = "age;height;animal\n10;1,0;cat\n20;2,0;dog\n30;3,0;cat\n40;2,0;dog\n"


def csv(path: Path, text: str, query: str = "?label=animal") -> str:
    path.write_text(text)
    return f"csv:{path}{query}"


def the_runs(tmp_path: Path) -> Description:
    return datasets.open_stored(csv(tmp_path / "held_out.csv", HELD_OUT), "test").description


def test_a_table_is_in_units_of_its_columns_and_classes_by_name(tmp_path: Path) -> None:
    data = datasets.load(csv(tmp_path / "a.csv", HELD_OUT), "test")
    assert data.x.dtype == np.float32
    assert np.allclose(data.x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(data.x.std(axis=0), 1)
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.description.columns == ("age", "height")
    assert data.description.labels == ("cat", "dog")
    assert data.description.means == (25.0, 2.0)


def test_a_device_takes_columns_units_and_classes_of_the_run(tmp_path: Path) -> None:
    mine = csv(tmp_path / "mine.csv", "animal,id,height,age\ndog,x-1,2.0,25\ndog,x-2,9.0,36.18034\n")
    data = datasets.load(mine, "train", the_runs(tmp_path))
    assert data.x[0].tolist() == [0.0, 0.0]
    assert data.x[1][0] == pytest.approx(1.0)
    assert data.y.tolist() == [1, 1]


def test_a_constant_keeps_its_unit_and_numbers_may_stay_as_they_are(tmp_path: Path) -> None:
    text = "a,b,y\n7,1,0\n7,3,1\n"
    assert datasets.load(csv(tmp_path / "c.csv", text, "?label=y"), "test").x.tolist() == [[0, -1], [0, 1]]
    raw = datasets.load(csv(tmp_path / "c.csv", text, "?label=y&scale=none&x=b"), "test")
    assert raw.x.tolist() == [[1], [3]]
    assert raw.description.means == ()


@pytest.mark.parametrize(
    ("labels", "query", "expected", "kind"),
    [
        ("0 2 1", "", [0, 2, 1], np.int64),
        ("0.5 2 1", "", [0.5, 2, 1], np.float32),
        ("3 2 1", "&targets=numbers", [3, 2, 1], np.float32),
        ("b a b", "", [1, 0, 1], np.int64),
    ],
)
def test_what_a_label_is_shows(
    tmp_path: Path, labels: str, query: str, expected: list[float], kind: type
) -> None:
    text = "x,y\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels.split()))
    data = datasets.load(csv(tmp_path / "l.csv", text, f"?label=y{query}"), "train")
    assert data.y.tolist() == expected
    assert data.y.dtype == kind


def test_numbers_may_have_a_comma_before_their_decimals(tmp_path: Path) -> None:
    query = "?label=animal&sep=;&decimal=comma"
    semicolons = datasets.load(csv(tmp_path / "s.csv", SEMICOLONS, query), "test")
    assert semicolons.x.tolist() == datasets.load(csv(tmp_path / "c.csv", HELD_OUT), "test").x.tolist()
    assert semicolons.description.labels == ("cat", "dog")
    text = "a;y\n1;0,5\n2;1,25\n"
    assert datasets.load(
        csv(tmp_path / "n.csv", text, "?label=y&sep=;&decimal=comma"), "test"
    ).y.tolist() == [*(0.5, 1.25)]


def test_text_among_numbers_is_told_of_whichever_part_it_stands_in(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row % 2}\n" for row in range(20))
    uri = csv(tmp_path / "t.csv", f"x,y\n{rows}", "?label=y&held=0.5")
    here = datasets.read(uri, "test").place(0)
    lines = f"x,y\n{rows}".splitlines()
    lines[int(here.removeprefix("line ")) - 1] = "many,0"
    with pytest.raises(
        ConfigError,
        match=rf"{here}: x is 'many', not a number; .*missing., or read it with .*package\.module:function$",
    ):
        datasets.load(csv(tmp_path / "t.csv", "\n".join(lines), "?label=y&held=0.5"), "test")


def test_all_columns_that_are_numbers_are_named_to_be_copied(tmp_path: Path) -> None:
    names = [f"sensor {place}" for place in range(30)]
    rows = [",".join((*("1" for _ in names), f"2026-11-24 {row}", "0")) for row in range(30)]
    text = "\n".join((",".join((*names, "time", "y")), *rows)) + "\n"
    with pytest.raises(
        ConfigError, match=r"time holds 30 different texts in 30 rows, .*: &x=(.*)$"
    ) as reported:
        datasets.load(csv(tmp_path / "w.csv", text, "?label=y"), "test")
    chosen = str(reported.value).partition("&x=")[2]
    assert chosen.split(",") == names
    assert datasets.load(csv(tmp_path / "w.csv", text, f"?label=y&x={chosen}"), "test").x.shape == (30, 30)


def test_a_part_is_held_out_and_the_rest_is_dealt(tmp_path: Path) -> None:
    text = "x,y\n" + "".join(f"{row},0\n" for row in range(50))
    uri = csv(tmp_path / "h.csv", text, "?label=y&scale=none&held=0.2")
    test = datasets.load(uri, "test").x.ravel().tolist()
    train = [datasets.load(f"{uri}&part={part}/2", "train").x.ravel().tolist() for part in (1, 2)]
    assert (len(test), len(train[0]), len(train[1])) == (10, 20, 20)
    assert sorted(test + train[0] + train[1]) == list(range(50))


@pytest.mark.parametrize(
    ("text", "query", "message"),
    [
        (HELD_OUT.replace("20,2.0", "20,"), ERROR, "line 3: height is empty or no finite number; fill it in"),
        (HELD_OUT.replace("20,2.0", "20,nan"), ERROR, "line 3: height is empty or no finite number"),
        (HELD_OUT.replace("20,2.0", "20,n/a"), ERROR, "line 3: height is empty or no finite number"),
        (HELD_OUT.replace("20,2.0", "20,"), "?label=animal&scale=none", "line 3: height is empty .*=drop"),
        (HELD_OUT.replace("20,2.0", "20,inf"), "", "line 3: height is empty or no finite number"),
        (HELD_OUT.replace("20,2.0", "20,tall"), "", "line 3: height is 'tall', not a number; .*&x=age"),
        (HELD_OUT.replace("20,2.0,dog", "20,2.0,"), ERROR, "line 3: the label is empty"),
        (HELD_OUT, "?label=animal&missing=median", "missing=median must be mean, drop or error, or left out"),
        ("a,b,y\n1,,0\n2,,1\n", "?label=y", "b has no value in any row; leave it out, or .*&x=a$"),
        (HELD_OUT.replace("20,2.0,dog", "20,2.0"), "", "line 3 has 2 cells, and the first one 3"),
        (HELD_OUT, "?label=species", "label=species: there is no such column; the columns are age, height"),
        (HELD_OUT, "?x=age", r"name the column to predict: \?label=COLUMN; the columns are age"),
        (HELD_OUT, "?label=animal&x=age,weight", "x=weight: there is no such column"),
        (HELD_OUT, "?label=animal&scale=much", "scale=much must be none, or left out"),
        (HELD_OUT, "?label=animal&held=1.5", "held=1.5 must be a part of its 4 samples"),
        (HELD_OUT, "?label=animal&sep=ab", "sep=ab must be one character"),
        (
            HELD_OUT.replace(",", ";"),
            "",
            "the first line has one cell, 'age;height;animal'; .* two cells: &sep=;",
        ),
        (HELD_OUT.replace(",", "\t"), "", "the first line has one cell, .* two cells: &sep=tab"),
        (
            SEMICOLONS,
            "?label=animal&sep=;",
            "line 2: height is '1,0', not a number; if .* &decimal=comma, or",
        ),
        (HELD_OUT, "?label=animal&decimal=,", "decimal=, must be comma, or left out"),
        (HELD_OUT, "?label=animal&colour=1", "option 'colour' is unknown; known are label, x"),
        ("age,animal\n", "", "has no rows"),
        ("", "", "the file is empty"),
        ("a,a,animal\n1,2,cat\n", "", "two columns have the same name"),
        ("animal\ncat\n", "", "there is no column but the label"),
        ("1,1.0,cat\n20,2.0,dog\n", "", "the columns are 1, 1.0, cat; write a first line that names the col"),
        (
            HELD_OUT.replace("20,2.0,dog", '"20,2.0,dog'),
            "",
            r'line 3 has 1 cells, and the first one 3; a quotation mark \("\) in it .* before line 5',
        ),
        (
            HELD_OUT.replace("20,2.0,dog", '"20,2.0,dog') + "20,2.0,dog\n" * 20_000,
            "",
            r'line 3 is no readable CSV: field larger than .*; a quotation mark \("\) in it is not closed',
        ),
        (
            "mode,height,animal\non,1,cat\noff,tall,dog\n",
            "",
            "line 3: height is 'tall', not a number; .* name the columns to train on: &x=mode$",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_line(tmp_path: Path, text: str, query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        datasets.load(csv(tmp_path / "w.csv", text, query or "?label=animal"), "test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "age,height,animal\n1,1,cat\n2,1,owl\n",
            "line 3: the label is 'owl', and the run's classes are cat, dog",
        ),
        (
            "age,height,animal\n1,1,cat\n2,tall,cat\n",
            "line 3: height is 'tall', not a number; .*empty .missing., or remove the row",
        ),
        ("age,animal\n1,cat\n", "has no column 'height', which the run trains on; rename one of age"),
    ],
)
def test_what_does_not_fit_the_run_is_told_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        datasets.load(csv(tmp_path / "w.csv", text), "train", the_runs(tmp_path))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (None, "line 2: the label is 'cat', and the run's are numbers of classes; correct it"),
        (Description(numbers=True), "line 2: the label is 'cat', and the run's are numbers; correct it"),
    ],
)
def test_names_of_classes_that_a_run_has_none_of(
    tmp_path: Path, described: Description | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(datasets.read(csv(tmp_path / "n.csv", HELD_OUT), "train"), described)


def test_lines_are_counted_in_the_file_however_many_there_are(tmp_path: Path) -> None:
    text = "x,y\n" + "1,0\n" * 9000 + "\n!,0\n"
    with pytest.raises(ConfigError, match="line 9003: x is '!', not a number"):
        describe(datasets.read(csv(tmp_path / "m.csv", text, "?label=y"), "test"))


def test_a_parquet_file_is_read_as_the_csv_is(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv as pyarrow_csv
    from pyarrow import parquet

    uri = csv(tmp_path / "a.csv", HELD_OUT)
    parquet.write_table(pyarrow_csv.read_csv(tmp_path / "a.csv"), tmp_path / "a.parquet")
    data, same = (
        datasets.load(uri, "test"),
        datasets.load(f"parquet:{tmp_path}/a.parquet?label=animal", "test"),
    )
    assert (data.x == same.x).all()
    assert data.y.tolist() == same.y.tolist()
    assert data.description == same.description
    table = pyarrow.table({"age": [1.0, None], "animal": ["cat", "dog"]})
    parquet.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match="row 2: age is empty"):
        datasets.load(f"parquet:{tmp_path}/b.parquet?label=animal&missing=error", "test")
    with pytest.raises(ConfigError, match="is no readable Parquet file"):
        datasets.load(f"parquet:{tmp_path}/a.csv?label=animal", "test")


def test_parquet_needs_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow: pip install '.*\[tables\]'"):
        datasets.load(f"parquet:{tmp_path}/a.parquet?label=y", "train")


@pytest.mark.parametrize("scheme", ["csv", "npz", "images"])
def test_a_path_that_is_not_there_is_told_from_where(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are often read from another folder than the one that they are in."""
    monkeypatch.chdir(tmp_path)
    reported = (
        rf"there is no such file; paths are relative to the command's folder, {re.escape(str(tmp_path))}$"
    )
    with pytest.raises(ConfigError, match=reported):
        datasets.read(f"{scheme}:../rows.csv", "test")
