"""Reads lines of CSV as messages, and detects whether lines are CSV or JSON.

A first line without a number names the columns; else they are called 0, 1, ... The target is the column y, or
the last one; the key is the column key, if there is one; x is all others, in their order, unless x=, y= or
key= name them. sep= is the separator of cells: one character or "tab"; the default is a comma. With
decimal=comma numbers are written 3,5.
"""

import csv
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgeflock.client.data.reading import OPTIONS, MessageReader
from edgeflock.client.data.records import Broken, Skipped, StreamChunk
from edgeflock.client.data.uri import Uri

TEXT_OPTIONS = (*OPTIONS, "format", "sep", "decimal")

_BOM = b"\xef\xbb\xbf"


class Text:
    """Converts lines of JSON or CSV to samples. format= or the first line defines the format."""

    def __init__(self, uri: Uri, tally: Skipped) -> None:
        """Raises ConfigError."""
        self._uri = uri
        self._tally = tally
        self._format = uri.one_of("format", "", "csv", "json")
        self._reader = MessageReader(uri, tally)
        self._separator = {"": ",", "tab": "\t"}.get(uri.options.get("sep", ""), uri.options.get("sep", ""))
        if len(self._separator) != 1:
            raise uri.error(f"sep={self._separator} must be one character, or tab")
        self._comma = uri.one_of("decimal", "point", "comma") == "comma"
        self._columns: list[str] = []

    def chunks(self, lines: list[tuple[int, int, bytes]], name: str) -> list[StreamChunk]:
        """Convert LineReader.feed's `lines` of the file `name`; "": without names for samples."""
        messages: list[tuple[bytes | Mapping[str, Any], str | None]] = []
        places = []
        for where, number, line in lines:
            line = line.removeprefix(_BOM)
            self._format = self._format or ("json" if line.lstrip()[:1] == b"{" else "csv")
            try:
                message = line if self._format == "json" else self._row(line)
            except Broken as broken:
                self._tally.add(broken.kind, f"line {number}: {broken.detail}")
                continue
            if message is not None:
                messages.append((message, f"{name}@{where}" if name else None))
                places.append(f"line {number}")
        return self._reader.chunks(messages, places)

    def _row(self, line: bytes) -> Mapping[str, Any] | None:
        """Return a row as a mapping, or None for the header. Raises Broken."""
        try:
            cells = next(csv.reader([line.decode()], delimiter=self._separator), [])
        except (ValueError, csv.Error) as error:
            raise Broken("unreadable", f"no line of CSV in UTF-8: {error}") from error
        values = [_value(cell.strip(), self._comma) for cell in cells]
        if not self._columns:
            if len(values) < 2:  # such a line must not name the columns
                raise Broken("incomplete", "a line has two cells at least")
            named = not any(isinstance(value, int | float) for value in values)
            self._name([str(cell or "") if named else str(place) for place, cell in enumerate(values)])
            if named:
                return None
        if len(values) != len(self._columns):
            raise Broken("incomplete", f"a line has {len(values)} cells, not {len(self._columns)}")
        return dict(zip(self._columns, values, strict=True))

    def _name(self, columns: list[str]) -> None:
        said, options = self._reader.fields, self._uri.options
        y = said.y if "y" in options or "y" in columns else columns[-1]
        x = said.x if "x" in options else tuple(name for name in columns if name not in (y, said.key))
        for name in (y, *x):
            if name not in columns:
                raise self._uri.error(f"there is no column {name!r}; there are {', '.join(columns)}")
        self._columns = columns
        self._reader.fields = replace(said, x=x, y=y)


def _value(cell: str, comma: bool) -> Any:
    """Return the cell as a number or text, or None if it is empty."""
    number = cell.replace(",", ".") if comma else cell
    for kind in (int, float):
        try:
            return kind(number)
        except ValueError:
            continue
    return cell or None
