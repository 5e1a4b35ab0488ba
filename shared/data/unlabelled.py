"""Samples to predict: the data of `edgeflock predict`, which need no labels.

    csv:PATH, parquet:PATH    a table with the columns that the model was trained on, and any others
    images:FOLDER             images in the folder or in subfolders
    npz:PATH                  x, or else x_test, or all fields x.NAME or x_test.NAME

digits: and package.module:function are as for training: the held-out samples, or what the function returns.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from edgeflock.shared.data import arrays, datasets, images, tables
from edgeflock.shared.data.fitting import inputs_of
from edgeflock.shared.data.samples import Raw
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Inputs

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnlabelledData:
    """Samples to predict."""

    x: Inputs
    """Inputs as the model takes them; they may be read lazily."""
    count: int
    columns: Row
    """The names of the columns that say which sample is which."""
    rows: Callable[[], Iterator[Row]]
    """Returns the values of these columns, sample by sample."""


def read(data: Any, description: Description | None, shape: tuple[int, ...] | None) -> UnlabelledData:
    """Read a data URI, or an array of samples. `description` and `shape` are those of the model's run.

    Raises ConfigError that names the data, the row and the remedy.
    """
    if not isinstance(data, str):
        raw = Raw("predict(...)", np.asarray(data), np.zeros(len(data), np.int64))
        return _samples(raw, description, shape)
    scheme, _, rest = data.partition(":")
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if scheme in ("csv", "parquet"):
        return _table(data, scheme, path, options, description)
    if scheme == "images":
        return _images(path, description, shape)
    if scheme == "npz":
        return _samples(_archive(path), description, shape)
    return _samples(datasets.read(data, "test"), description, shape)


def _samples(
    raw: Raw,
    description: Description | None,
    shape: tuple[int, ...] | None,
    columns: Row = ("sample",),
    rows: Callable[[], Iterator[Row]] | None = None,
) -> UnlabelledData:
    x = inputs_of(raw, description or Description(), shape)
    return UnlabelledData(
        x, len(raw), columns, rows or (lambda: ((str(number),) for number in range(len(raw))))
    )


def _table(
    uri: str, scheme: str, path: str, options: Mapping[str, str], description: Description | None
) -> UnlabelledData:
    if description is None or not description.columns:
        raise ConfigError(f"data {uri!r}: the model was not trained on a table; name data like its own")
    known = tables.CSV_OPTIONS if scheme == "csv" else tables.OPTIONS
    if wrong := [option for option in options if option not in known]:
        raise ConfigError(f"data {uri!r}: option {wrong[0]!r} is unknown; known are {', '.join(known)}")
    reading = tables.read_csv if scheme == "csv" else tables.read_parquet
    ours = {key: value for key, value in options.items() if key in ("sep", "decimal")}
    raw = replace(reading(path, ours, labelled=False), missing="mean")
    if scheme == "csv":
        header, rows = _cells(path, tables.separator_of(options))
    else:
        header, rows = _cells_of_parquet(path)
    return _samples(raw, description, None, header, rows)


def _cells(path: str, separator: str) -> tuple[Row, Callable[[], Iterator[Row]]]:
    """Return (the header of a CSV file, its rows, read anew)."""

    def lines() -> Iterator[Row]:
        with open(path, encoding="utf-8-sig", newline="") as file:
            for cells in csv.reader(file, delimiter=separator):
                if any(cells):
                    yield tuple(cells)

    def rows() -> Iterator[Row]:
        beyond = lines()
        next(beyond)
        return beyond

    return tuple(name.strip() for name in next(lines())), rows


def _cells_of_parquet(path: str) -> tuple[Row, Callable[[], Iterator[Row]]]:
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = [["" if cell is None else str(cell) for cell in column.to_pylist()] for column in table.columns]
    return tuple(table.column_names), lambda: zip(*columns, strict=True)


def _images(path: str, description: Description | None, shape: tuple[int, ...] | None) -> UnlabelledData:
    files = images.files_in(Path(path))
    if not files:
        raise ConfigError(f"data 'images:{path}': there are no images; name a folder that has some")
    names = [str(file.relative_to(path)) for file in files]
    pictures, nothing = images.pictures(files, None), np.zeros(len(files), np.int64)
    raw = Raw(f"images:{path}", pictures, nothing, place=names.__getitem__)
    return _samples(raw, description, shape, ("file",), lambda: ((name,) for name in names))


def _archive(path: str) -> Raw:
    def select(names: list[str]) -> list[str]:
        for prefix in ("x", "x_test"):
            found = [name for name in names if name == prefix] or [
                name for name in names if name.startswith(f"{prefix}.")
            ]
            if found:
                return found
        return ["x or x_test"]

    found = arrays.load_arrays(path, select)
    name, first = next(iter(found.items()))
    return Raw(
        f"npz:{path}", arrays.fields_of(found) if "." in name else first, np.zeros(len(first), np.int64)
    )
