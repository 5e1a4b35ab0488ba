"""Converts a source's messages or lines to chunks, according to the options of its URI.

Lines are JSON or CSV. A first line of CSV without a number names the columns; else they are called 0, 1, ...
The target is the column y, or the last one; the key is the column key, if there is one; x is all others, in
their order, unless x=, y= or key= name them. sep= is the separator of cells: one character or "tab"; the
default is a comma. With decimal=comma numbers are written 3,5.
"""

import csv
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from edgeflock.client.data.messages import (
    INCOMPLETE,
    FieldPaths,
    Joining,
    SampleMessage,
    decode,
    group_records,
)
from edgeflock.client.data.records import (
    RECORD_BYTES,
    RECORD_CHARS,
    Broken,
    Skipped,
    StreamChunk,
    message_entry,
)
from edgeflock.client.data.uri import Uri
from edgeflock.shared.data.tables import separator_of

OPTIONS = ("x", "y", "key", "names", "join", "missing")


class MessageReader:
    """Converts messages to samples and counts broken ones."""

    def __init__(self, uri: Uri, tally: Skipped, now: Callable[[], float] = time.monotonic) -> None:
        """Read the OPTIONS of `uri`. Raises ConfigError."""
        default, options = FieldPaths(), uri.options
        self.fields = FieldPaths(
            _names(uri, "x") or default.x,
            options.get("y") or default.y,
            options.get("key") or default.key,
            _names(uri, "names"),
            uri.one_of("missing", "drop", "mean", "error"),
        )
        self._uri = uri
        self._tally = tally
        self._now = now
        self._joining = Joining(uri.seconds("join", 0.0), tally)

    def chunks(
        self, messages: Iterable[tuple[bytes | Mapping[str, Any], str | None]], places: Iterable[str] = ()
    ) -> list[StreamChunk]:
        """Return the samples of `messages` that are whole by now, in order.

        Each message comes with its name at the source, which is its key if it has no key of its own. `places`
        describe the messages to users. Raises ConfigError if one lacks a value and missing=error is set.
        """
        records = []
        for (message, name), place in zip(messages, chain(places, repeat(""))):  # noqa: B905
            try:
                records.append(self._record(message, name))
            except Broken as broken:
                prefix = f"{place}: " if place else ""
                if broken.kind == INCOMPLETE and self.fields.missing == "error":
                    raise self._uri.error(f"{prefix}{broken.detail} (missing=error)") from broken
                shown = message_entry(message) if isinstance(message, bytes) else repr(message)[:RECORD_CHARS]
                self._tally.add(broken.kind, f"{prefix}{broken.detail}", records=[shown])
        return group_records(self._joining.join(records, self._now()))

    def _record(self, message: bytes | Mapping[str, Any], name: str | None) -> SampleMessage:
        record = decode(message, self.fields) if isinstance(message, bytes) else self.fields.read(message)
        # A half gets no key from its source, since no partner has that key.
        whole = record.x is not None and record.y is not None
        return replace(record, key=name) if whole and record.key is None else record


def _names(uri: Uri, option: str) -> tuple[str, ...]:
    names = tuple(uri.options[option].split(",")) if option in uri.options else ()
    if names and not all(names):
        raise uri.error(f"{option}={uri.options[option]} must be names such as a,b")
    return names


class LineReader:
    r"""Reads lines of at most RECORD_BYTES. A line ends with \n or \r\n, which it does not include."""

    def __init__(self, tally: Skipped) -> None:
        self._tally = tally
        self._partial = bytearray()
        self._too_long = False
        self._offset = 0
        self._number = 0

    def feed(self, block: bytes) -> list[tuple[int, int, bytes]]:
        """Return (offset, number from 1 on, line) of each line that `block` completes."""
        *ended, rest = block.split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines += self._take_line(1)
        self._add(rest)
        return lines

    def end(self) -> list[tuple[int, int, bytes]]:
        """Return the text after the last line end, if there is any."""
        return self._take_line(0)

    def _add(self, part: bytes) -> None:
        self._offset += len(part)
        if self._too_long:
            return
        self._partial += part
        if len(self._partial) > RECORD_BYTES + 1:  # 1 for a \r
            self._skip_line()

    def _skip_line(self) -> None:
        self._tally.add("too large", f"a line is longer than {RECORD_BYTES} bytes")
        self._too_long = True
        self._partial.clear()

    def _take_line(self, line_end: int) -> list[tuple[int, int, bytes]]:
        line, began = bytes(self._partial), self._offset - len(self._partial)
        whole = not self._too_long
        self._partial.clear()
        self._too_long = False
        self._offset += line_end
        line = line.removesuffix(b"\r")
        if len(line) > RECORD_BYTES:
            self._skip_line()
            self._too_long = whole = False
        self._number += 1
        return [(began, self._number, line)] if whole and line.strip() else []


TEXT_OPTIONS = (*OPTIONS, "format", "sep", "decimal")

_BOM = b"\xef\xbb\xbf"


class Text:
    """Converts lines of JSON or CSV. format= or the first line with "{" or two cells defines the format."""

    def __init__(self, uri: Uri, tally: Skipped) -> None:
        """Raises ConfigError."""
        self._uri = uri
        self._tally = tally
        self._format = uri.one_of("format", "", "csv", "json")
        self._reader = MessageReader(uri, tally)
        self._separator = separator_of(uri.options)
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
            if not self._columns and line.lstrip()[:1] == b"{":
                self._format = self._format or "json"
            try:
                message = line if self._format == "json" else self._row(line)
            except Broken as broken:
                self._tally.add(broken.kind, f"line {number}: {broken.detail}", records=[message_entry(line)])
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
            remedy = "; for lines of JSON set format=json" if line.lstrip()[:1] == b"{" else ""
            raise Broken("incomplete", f"a line has {len(values)} cells, not {len(self._columns)}{remedy}")
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
