"""Tables: csv:PATH?label=COLUMN and parquet:PATH?label=COLUMN.

    x=COLUMN,COLUMN     the columns of x; without it, all but the label
    targets=numbers     the label is a number to predict; or classes; without it, text and whole numbers are
                        classes, and other numbers are to predict
    scale=none          numbers stay as they are; without it they are scaled to mean 0 and deviation 1, also
                        numbers to predict
    missing=mean        the default: a missing number is the mean, and a missing category is none of them;
                        drop leaves such rows out, and error ends. Rows without a label are left out, but
                        with error they end too
    sep=;               for CSV: the character between two cells, or "tab"; the default is a comma
    decimal=comma       for CSV: numbers are written 3,5, as is usual with a semicolon between cells

The first line of CSV names the columns. A column without any number holds categories. A device needs only the
label's name. It learns columns, units, categories and classes from the server, whose held-out data define
them. A cell without a value is empty, or as in texts.MISSING: NA, null, ...
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw, missing_file
from edgeflock.shared.data.texts import POLICIES, Texts, is_missing
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command

OPTIONS = ("label", "x", "targets", "scale", "missing")
CSV_OPTIONS = (*OPTIONS, "sep", "decimal")

_ROWS = 4096
"""The lines that are parsed at a time."""

Cells = tuple[str, ...]

_UNLABELLED = ("0",)
"""The labels of a row without a label."""


def read_csv(path: str, options: Mapping[str, str], *, labelled: bool = True) -> Raw:
    """Read a table. If it is not `labelled`, no column is the label and y is 0. Raises ConfigError."""
    source = f"csv:{path}"
    separator = separator_of(options)
    if len(separator) != 1:
        raise ConfigError(f"data {source!r}: sep={separator} must be one character, or tab")
    decimal = options.get("decimal", "point")
    if decimal not in ("point", "comma"):
        raise ConfigError(f"data {source!r}: decimal={decimal} must be comma, or left out")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=separator)
            header = [name.strip() for name in next(lines, [])]
            _check_separator(source, header)
            label, chosen = _columns(source, header, options, labelled)
            blocks = list(
                _blocks(source, _numbered(source, lines), len(header), label, chosen, decimal == "comma")
            )
    except FileNotFoundError as error:
        raise missing_file(source) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"data {source!r}: is no text in UTF-8: {error}; save it as UTF-8") from error
    except (OSError, csv.Error) as error:
        raise ConfigError(f"data {source!r}: is no readable CSV: {error}") from error
    if not blocks:
        raise ConfigError(f"data {source!r}: has no rows but the one that names the columns")
    x = np.concatenate([block for block, _, _, _ in blocks])
    y, unlabelled = _label((cell for _, cells, _, _ in blocks for cell in cells), decimal == "comma")
    rows = np.concatenate([places for _, _, places, _ in blocks])
    found: dict[int, list[tuple[int, str]]] = {}
    offset = 0
    for block, *_, some in blocks:
        for column, cells in some.items():
            found.setdefault(column, []).extend((offset + row, text) for row, text in cells)
        offset += len(block)
    texts = {column: Texts.from_cells(len(x), cells) for column, cells in found.items()}
    names = tuple(header[column] for column in chosen)
    raw = Raw(source, x, y, names, lambda sample: f"line {rows[sample]}", texts)
    return _apply_options(raw, unlabelled, options)


def separator_of(options: Mapping[str, str]) -> str:
    """Return the character between two cells of CSV that sep= names."""
    return {"": ",", "tab": "\t"}.get(options.get("sep", ""), options.get("sep", ""))


Block = tuple[NDArray[np.float64], Cells, NDArray[np.int64], dict[int, list[tuple[int, str]]]]
"""x [rows, columns], labels, line numbers, and column -> (row of the block, text) of each text in it."""


def _check_separator(source: str, header: list[str]) -> None:
    """Raise ConfigError if the first line uses another separator than the given one."""
    for separator, name in (";", ";"), ("\t", "tab"), ("|", "|"):
        if len(header) == 1 and separator in header[0]:
            raise ConfigError(
                f"data {source!r}: the first line has one cell, {header[0]!r:.60}; name the character "
                f"between two cells: &sep={name}"
            )


def _numbered(source: str, lines: Any) -> Iterator[tuple[int, int, list[str]]]:
    """Yield (first line, last line, cells) of each row that `lines`, a csv.reader, has after this one."""
    last = lines.line_num
    try:
        for cells in lines:
            first, last = last + 1, lines.line_num
            if any(cells):
                yield first, last, cells
    except csv.Error as error:
        unclosed = '; a quotation mark (") in it is not closed: remove or close it'
        raise ConfigError(
            f"data {source!r}: line {last + 1} is no readable CSV: {error}"
            + unclosed * (lines.line_num > last + 1)
        ) from error


def _blocks(
    source: str,
    numbered: Iterator[tuple[int, int, list[str]]],
    width: int,
    label: int | None,
    chosen: list[int],
    comma: bool,
) -> Iterator[Block]:
    while block := list(islice(numbered, _ROWS)):
        for line, last, cells in block:
            if len(cells) != width:
                raise ConfigError(
                    f"data {source!r}: line {line} has {len(cells)} cells, and the first one {width}; "
                    + (
                        f'a quotation mark (") in it is not closed before line {last}: remove or close it'
                        if last > line
                        else "correct it, or name the character between two cells: &sep="
                    )
                )
        rows = np.array([line for line, _, _ in block], np.int64)
        columns = list(zip(*(cells for _, _, cells in block), strict=True))
        x = np.empty((len(block), len(chosen)))
        texts = {}
        for place, column in enumerate(chosen):
            x[:, place], found = _numbers(columns[column], comma)
            if found:
                texts[place] = found
        yield x, _UNLABELLED * len(block) if label is None else columns[label], rows, texts


def _numbers(cells: Cells, comma: bool) -> tuple[NDArray[np.float64], list[tuple[int, str]]]:
    """Return (numbers, NaN where there is none; the cells with text as (index, text))."""
    plain = tuple(cell.replace(",", ".") for cell in cells) if comma else cells
    try:
        return np.array(plain, np.float64), []
    except ValueError:
        pass
    numbers, texts = np.full(len(cells), np.nan), []
    for place, cell in enumerate(plain):
        try:
            numbers[place] = float(cell)
        except ValueError:
            if not is_missing(cell):
                texts.append((place, cells[place]))
    return numbers, texts


def read_parquet(path: str, options: Mapping[str, str], *, labelled: bool = True) -> Raw:
    """Read a table, as `read_csv` does. Raises ConfigError."""
    source = f"parquet:{path}"
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"data {source!r} needs pyarrow: {install_command('tables')}") from error
    try:
        file = parquet.ParquetFile(path)
        header = list(file.schema_arrow.names)
        label, chosen = _columns(source, header, options, labelled)
        table = file.read([header[column] for column in (*chosen, *(() if label is None else (label,)))])
    except FileNotFoundError as error:
        raise missing_file(source) from error
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"data {source!r}: is no readable Parquet file: {error}") from error
    if not table.num_rows:
        raise ConfigError(f"data {source!r}: has no rows")
    x = np.empty((table.num_rows, len(chosen)))
    texts: dict[int, Texts] = {}
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
            cell_texts = tuple("" if cell is None else str(cell) for cell in cells.to_pylist())
            x[:, place], found = _numbers(cell_texts, comma=False)
            if found:
                texts[place] = Texts.from_cells(table.num_rows, found)
    label_cells = _UNLABELLED * table.num_rows if label is None else table.column(header[label]).to_pylist()
    y, unlabelled = _label("" if value is None else str(value) for value in label_cells)
    names = tuple(header[column] for column in chosen)
    return _apply_options(
        Raw(source, x, y, names, lambda sample: f"row {sample + 1}", texts), unlabelled, options
    )


def _columns(
    source: str, header: list[str], options: Mapping[str, str], labelled: bool
) -> tuple[int | None, list[int]]:
    """Return (the label's column, the columns of x). Raises ConfigError."""
    listing = f"the columns are {', '.join(header[:40])}" if header else "the file is empty"
    numbers = _numbers(tuple(header), comma=False)[0]
    unnamed = "" if np.isnan(numbers).all() else "; write a first line that names the columns"
    if len(set(header)) < len(header):
        raise ConfigError(f"data {source!r}: two columns have the same name; rename one; {listing}{unnamed}")

    def place(name: str, option: str) -> int:
        if name not in header:
            raise ConfigError(
                f"data {source!r}: {option}={name}: there is no such column; {listing}{unnamed}"
            )
        return header.index(name)

    if "label" not in options and labelled:
        raise ConfigError(f"data {source!r}: name the column to predict: ?label=COLUMN; {listing}")
    label = place(options["label"], "label") if labelled else None
    if "x" in options:
        chosen = [place(name.strip(), "x") for name in options["x"].split(",")]
    else:
        chosen = [column for column in range(len(header)) if column != label]
    if not chosen:
        raise ConfigError(f"data {source!r}: there is no column but the label {options['label']}")
    return label, chosen


def _label(cells: Iterable[str], comma: bool = False) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
    """Return (y, which samples have none). y is integers if all are; else numbers if all are; else text."""
    texts = np.array([cell.strip() for cell in cells], np.str_)
    lacking = np.array([is_missing(text) for text in texts.tolist()], np.bool_)
    numbers = np.char.replace(texts, ",", ".") if comma else texts
    for kind in (np.int64, np.float64):
        try:
            y = np.where(lacking, "0", numbers).astype(kind)
        except (ValueError, OverflowError):
            continue
        return y, lacking | np.isnan(y)
    return texts, lacking


def _apply_options(raw: Raw, unlabelled: NDArray[np.bool_], options: Mapping[str, str]) -> Raw:
    """Apply the options to `raw`, and leave out the samples without a label. Raises ConfigError."""
    choices = {"targets": ("classes", "numbers"), "scale": ("none",), "missing": POLICIES}
    for option, names in choices.items():
        if option in options and options[option] not in names:
            *others, last = names
            named = f"{', '.join(others)} or {last}" if others else last
            raise ConfigError(f"data {raw.source!r}: {option}={options[option]} must be {named}, or left out")
    numbers = None if "targets" not in options else options["targets"] == "numbers"
    missing = options.get("missing", POLICIES[0])
    raw = replace(raw, scale="scale" not in options, numbers=numbers, missing=missing)
    if not unlabelled.any():
        return raw
    if missing == "error" or unlabelled.all():
        raise raw.error("the label is empty; fill it in, or remove the row", int(unlabelled.argmax()))
    return replace(raw.select(np.flatnonzero(~unlabelled)), unlabelled=int(unlabelled.sum()))
