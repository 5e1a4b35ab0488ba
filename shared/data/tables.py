"""Tables: csv:PATH?label=COLUMN and parquet:PATH?label=COLUMN.

    x=COLUMN,COLUMN     which columns are x; without it, all but the label
    targets=numbers     the label is a number to predict; or classes; without it, it shows: text and whole
                        numbers are classes
    scale=none          numbers are taken as they are, not brought to mean 0 and deviation 1
    sep=;               of CSV: what stands between two cells, or "tab"; a comma without it
    decimal=comma       of CSV: numbers are written 3,5, as where a semicolon stands between two cells

The first line of CSV names the columns. A device needs the label's name only: which columns, which units and
which classes, it learns from the server, whose held-out data say it.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install

OPTIONS = ("label", "x", "targets", "scale")
CSV_OPTIONS = (*OPTIONS, "sep", "decimal")

_ROWS = 4096
"""Lines that are taken apart at a time."""

Cells = tuple[str, ...]


def read_csv(path: str, options: Mapping[str, str]) -> Raw:
    """Raises ConfigError."""
    source = f"csv:{path}"
    separator = options.get("sep", ",")
    separator = "\t" if separator == "tab" else separator
    if len(separator) != 1:
        raise ConfigError(f"data {source!r}: sep={separator} must be one character, or tab")
    decimal = options.get("decimal", "point")
    if decimal not in ("point", "comma"):
        raise ConfigError(f"data {source!r}: decimal={decimal} must be comma, or left out")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=separator)
            header = [name.strip() for name in next(lines, [])]
            _taken_apart(source, header)
            label, chosen = _columns(source, header, options)
            blocks = list(_blocks(source, lines, len(header), label, chosen, decimal == "comma"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"data {source!r}: is no readable CSV in UTF-8: {error}") from error
    if not blocks:
        raise ConfigError(f"data {source!r}: has no rows but the one that names the columns")
    x = np.concatenate([block for block, _, _, _ in blocks])
    y = _label((cell for _, cells, _, _ in blocks for cell in cells), decimal == "comma")
    rows = np.concatenate([places for _, _, places, _ in blocks])
    odd: dict[int, tuple[int, str]] = {}
    for *_, found in reversed(blocks):
        odd.update(found)
    back = {int(row): sample for sample, row in enumerate(rows)}
    odd = {column: (back[row], text) for column, (row, text) in odd.items()}
    names = tuple(header[column] for column in chosen)
    return _raw(source, x, y, names, lambda sample: f"line {rows[sample]}", odd, options)


Block = tuple[NDArray[np.float64], Cells, NDArray[np.int64], dict[int, tuple[int, str]]]
"""x [rows, columns], labels, line numbers, and column -> (line number, text) of the first text in it."""


def _taken_apart(source: str, header: list[str]) -> None:
    """Raises ConfigError if another character than was said stands between the names."""
    for separator, said in (";", ";"), ("\t", "tab"), ("|", "|"):
        if len(header) == 1 and separator in header[0]:
            raise ConfigError(
                f"data {source!r}: the first line has one cell, {header[0]!r:.60}; say what stands between "
                f"two: &sep={said}"
            )


def _blocks(
    source: str, lines: Any, width: int, label: int, chosen: list[int], comma: bool
) -> Iterator[Block]:
    numbered = ((lines.line_num, cells) for cells in lines if any(cells))
    while block := list(islice(numbered, _ROWS)):
        for line, cells in block:
            if len(cells) != width:
                raise ConfigError(
                    f"data {source!r}: line {line} has {len(cells)} cells, and the first one {width}; mend "
                    "it, or name what stands between two cells: &sep="
                )
        rows = np.array([line for line, _ in block], np.int64)
        columns = list(zip(*(cells for _, cells in block), strict=True))
        x = np.empty((len(block), len(chosen)))
        odd = {}
        for place, column in enumerate(chosen):
            x[:, place], first = _numbers(columns[column], comma)
            if first is not None:
                odd[place] = int(rows[first]), columns[column][first]
        yield x, columns[label], rows, odd


def _numbers(cells: Cells, comma: bool) -> tuple[NDArray[np.float64], int | None]:
    """(the numbers, NaN where there is none; where the first text stands)."""
    if comma:
        cells = tuple(cell.replace(",", ".") for cell in cells)
    try:
        return np.array(cells, np.float64), None
    except ValueError:
        pass
    numbers, first = np.full(len(cells), np.nan), None
    for place, cell in enumerate(cells):
        try:
            numbers[place] = float(cell or "nan")
        except ValueError:
            first = place if first is None and cell.strip() else first
    return numbers, first


def read_parquet(path: str, options: Mapping[str, str]) -> Raw:
    """Raises ConfigError."""
    source = f"parquet:{path}"
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"data {source!r} needs pyarrow: {install('tables')}") from error
    try:
        file = parquet.ParquetFile(path)
        header = list(file.schema_arrow.names)
        label, chosen = _columns(source, header, options)
        table = file.read([header[column] for column in (label, *chosen)])
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"data {source!r}: is no readable Parquet file: {error}") from error
    if not table.num_rows:
        raise ConfigError(f"data {source!r}: has no rows")
    x = np.empty((table.num_rows, len(chosen)))
    odd: dict[int, tuple[int, str]] = {}
    for place, column in enumerate(chosen):
        cells = table.column(header[column])
        kind = cells.type
        if (
            pyarrow.types.is_integer(kind)
            or pyarrow.types.is_floating(kind)
            or pyarrow.types.is_boolean(kind)
        ):
            x[:, place] = cells.cast(pyarrow.float64(), safe=False).to_numpy()
        else:
            x[:, place], odd[place] = np.nan, (0, str(cells[0].as_py()))
    y = _label("" if value is None else str(value) for value in table.column(header[label]).to_pylist())
    names = tuple(header[column] for column in chosen)
    return _raw(source, x, y, names, lambda sample: f"row {sample + 1}", odd, options)


def _columns(source: str, header: list[str], options: Mapping[str, str]) -> tuple[int, list[int]]:
    """(where the label is, where x is). Raises ConfigError."""
    there = f"the columns are {', '.join(header[:40])}" if header else "the file is empty"
    if len(set(header)) < len(header):
        raise ConfigError(f"data {source!r}: two columns have one name; {there}")

    def place(name: str, option: str) -> int:
        if name not in header:
            raise ConfigError(f"data {source!r}: {option}={name}: there is no such column; {there}")
        return header.index(name)

    if "label" not in options:
        raise ConfigError(f"data {source!r}: say which column is to be predicted: ?label=COLUMN; {there}")
    label = place(options["label"], "label")
    if "x" in options:
        chosen = [place(name.strip(), "x") for name in options["x"].split(",")]
    else:
        chosen = [column for column in range(len(header)) if column != label]
    if not chosen:
        raise ConfigError(f"data {source!r}: there is no column but the label {header[label]}")
    return label, chosen


def _label(cells: Iterable[str], comma: bool = False) -> NDArray[np.generic]:
    """Whole numbers, if all are that; numbers, if all are; else text. NaN where a number is left out."""
    told = np.array([cell.strip() for cell in cells], np.str_)
    numbers = np.char.replace(told, ",", ".") if comma else told
    for kind in (np.int64, np.float64):
        try:
            return np.where(told == "", "nan", numbers).astype(kind)
        except (ValueError, OverflowError):
            continue
    return told


def _raw(
    source: str,
    x: NDArray[np.float64],
    y: NDArray[np.generic],
    names: tuple[str, ...],
    place: Callable[[int], str],
    odd: dict[int, tuple[int, str]],
    options: Mapping[str, str],
) -> Raw:
    for option, choices in (("targets", ("classes", "numbers")), ("scale", ("none",))):
        if option in options and options[option] not in choices:
            raise ConfigError(
                f"data {source!r}: {option}={options[option]} must be {' or '.join(choices)}, or left out"
            )
    numbers = None if "targets" not in options else options["targets"] == "numbers"
    raw = Raw(source, x, y, names, place, odd, "scale" not in options, numbers)
    if y.dtype.kind == "U" and (empty := np.flatnonzero(y == "")).size:
        raise raw.wrong("the label is empty; fill it in, or remove the row", int(empty[0]))
    return raw
