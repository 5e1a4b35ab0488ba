"""Coding of frames: one msgpack map, of type snapshot or delta, in one WebSocket message.

No I/O. As in wire.py, unknown input is refused: another type, another key, a value of another type, a number
that is not finite. A record in a frame is a map of its fields, and a row is a list of its entries.
"""

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeVar

import msgpack

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.frames import (
    BINS,
    COLUMNS,
    MAX_CLASSES,
    Classes,
    Delta,
    DeviceRow,
    Evaluation,
    Event,
    Finding,
    Frame,
    GatewayRow,
    Mark,
    Overview,
    Point,
    PrivacySpent,
    RunFacts,
    ShardRow,
    Snapshot,
    TaskRoundStatus,
)
from edgeflock.shared.protocol.schema import (
    AllocationLimits,
    Check,
    Row,
    check_for,
    checks_of,
    rows_for,
    unpack,
)

_MIN_CONTAINERS, _ROW = 1 << 12, 16
"""The most lists and maps of a short frame, and the bytes per further one of a longer frame."""

Record = TypeVar("Record")


def encode(frame: Frame) -> bytes:
    """Encode one frame as the payload of one WebSocket message."""
    entries: dict[str, Any] = {"type": type(frame).__name__.lower()}
    entries |= {field.name: getattr(frame, field.name) for field in fields(frame)}
    overview = entries["overview"] = asdict(frame.overview)
    # Most runs have no gateways and no shards: leave them out.
    for key in _OPTIONAL:
        if not overview[key]:
            del overview[key]
    # Most evaluations have no metrics or no classes: empty last entries are left out.
    entries["evaluations"] = [_shorten(row) for row in frame.evaluations]
    if isinstance(frame, Snapshot):
        entries["run"] = asdict(frame.run)
        entries["columns"] = COLUMNS
    octets: bytes = msgpack.packb(entries)
    return octets


def decode(octets: bytes) -> Frame:
    """Decode the frame in `octets`. Raises Malformed."""
    bounds = AllocationLimits(_MIN_CONTAINERS + len(octets) // _ROW, array=1 << 17, map=1 << 12, text=1 << 16)
    entries = unpack(octets, bounds, "a frame")
    kind = entries.pop("type", None) if type(entries) is dict else None
    if kind == "snapshot":
        columns = entries.pop("columns", None)
        if columns != list(COLUMNS):
            raise Malformed(f"devices have columns {columns!r:.200}; this monitor knows {', '.join(COLUMNS)}")
        return _snapshot(entries, "snapshot")
    if kind == "delta":
        return _delta(entries, "delta")
    raise Malformed(f"a frame is a map of type snapshot or delta, not {kind!r:.40}")


def device_history(document: object) -> tuple[DeviceRow, tuple[Point, ...]]:
    """Read the JSON answer of GET /v1/devices/NAME: a device and its recent updates. Raises Malformed.

    {"device": {column: value, ...}, "history": [[time, loss, staleness, bytes], ...]}
    """
    if type(document) is not dict or document.keys() != {"device", "history"}:
        raise Malformed("a device's history is an object of device and history")
    device = document["device"]
    if type(device) is not dict or device.keys() != set(COLUMNS):
        raise Malformed(f"device has the keys {', '.join(COLUMNS)}")
    (row,) = _rows([[device[name] for name in COLUMNS]], "device")
    return row, _points(document["history"], "history")


def history(document: object) -> tuple[Mark, ...]:
    """Read the JSON answer of GET /v1/history: rows of marks, oldest first. Raises Malformed."""
    return _marks(document, "history")


def _sections(value: Any, name: str) -> Any:
    if type(value) is not dict or not all(type(section) is dict for section in value.values()):
        raise Malformed(f"{name} must map sections to their settings")
    return value


def _bins(value: Any, name: str) -> Any:
    if type(value) is not list or len(value) != BINS or set(map(type, value)) != {int}:
        raise Malformed(f"{name} must be {BINS} integers")
    return value


def _map_for(kind: type[Record]) -> Callable[[Any, str], Record]:
    """Return the check of a map of all the fields of `kind`, which returns the record."""
    checks = checks_of(kind, _CHECKS)

    def check(value: Any, name: str) -> Record:
        if type(value) is not dict or value.keys() != checks.keys():
            found = ", ".join(map(str, value)) if type(value) is dict else type(value).__name__
            raise Malformed(f"{name} has the keys {', '.join(checks)}, not {found:.200}")
        return kind(**{key: check(value[key], f"{name}.{key}") for key, check in checks.items()})

    return check


def _shorten(evaluation: Evaluation) -> list[Any]:
    row = [*evaluation]
    while not row[-1] and len(row) > _NUMBERS:
        del row[-1]
    return row


def _evaluations(value: Any, name: str) -> tuple[Evaluation, ...]:
    """Rows of numbers, optionally followed by a map of metrics, and then by counts of classes."""
    limit = len(Evaluation._fields)
    if type(value) is not list or not all(type(row) is list and len(row) <= limit for row in value):
        raise Malformed(f"{name} must be rows of {_NUMBERS} to {limit} entries")
    numbers = _evaluation_rows([row[:_NUMBERS] for row in value], name)
    return tuple(
        evaluation._replace(**_details(row[_NUMBERS:], name)) if len(row) > _NUMBERS else evaluation
        for evaluation, row in zip(numbers, value, strict=True)
    )


def _details(entries: list[Any], name: str) -> dict[str, Any]:
    return {
        key: check(entry, f"{name}.{key}")
        for (key, check), entry in zip(
            {"metrics": _metrics, "classes": _classes}.items(), entries, strict=False
        )
    }


def _classes(value: Any, name: str) -> Classes:
    if type(value) is not list or len(value) > MAX_CLASSES:
        raise Malformed(f"{name} must be {MAX_CLASSES} counts at most")
    for counts in value:
        if type(counts) is not list or [*map(type, counts)] != [int, int] or not 0 <= counts[0] <= counts[1]:
            raise Malformed(f"{name} must be [predictions that are right, predictions] of each class")
    return tuple((right, total) for right, total in value)


def _metrics(value: Any, name: str) -> dict[str, float | None]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise Malformed(f"{name} must map names to numbers")
    return {key: _number(number, name) for key, number in value.items()}


def _overview(value: Any, name: str) -> Overview:
    """Check an overview, with defaults for the keys that may be left out."""
    return _whole_overview({**_OPTIONAL, **value} if type(value) is dict else value, name)


def _row_for(kind: type[Row]) -> Check:
    """Return the check of one row of the NamedTuple `kind`, which returns that NamedTuple."""
    check = rows_for(kind)
    return lambda value, name: check([value], name)[0]


_NUMBERS = Evaluation._fields.index("metrics")
_evaluation_rows, _number = rows_for(Evaluation), check_for(float | None, {})

_rows, _points, _marks = rows_for(DeviceRow), rows_for(Point), rows_for(Mark)

_CHECKS: dict[Any, Check] = {
    dict: _sections,
    list: _bins,
    TaskRoundStatus: _row_for(TaskRoundStatus),
    PrivacySpent: _row_for(PrivacySpent),
    tuple[DeviceRow, ...]: _rows,
    tuple[Evaluation, ...]: _evaluations,
    tuple[Event, ...]: rows_for(Event),
    tuple[Finding, ...]: rows_for(Finding),
    tuple[GatewayRow, ...]: rows_for(GatewayRow),
    tuple[ShardRow, ...]: rows_for(ShardRow),
}
_OPTIONAL: dict[str, Any] = {"gateways": [], "shards": [], "restored": 0, "privacy": None}
_whole_overview = _map_for(Overview)
_CHECKS |= {RunFacts: _map_for(RunFacts), Overview: _overview}

_snapshot, _delta = _map_for(Snapshot), _map_for(Delta)
