"""What a server tells whoever watches its run: first a Snapshot, then Deltas. docs/top.md, `GET /v1/feed`.

A frame is one msgpack map in one WebSocket message. No I/O. As in wire.py, what is not known is refused:
another type, another key, a value of another type, a number that is not finite. Devices, evaluations and
events travel as positional rows, which are checked column by column: thousands of devices may be in a frame.
"""

import math
import types
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgpack

from edgeflock.shared.errors import Malformed

State = Literal["training", "idle", "paused", "away"]
Role = Literal["viewer", "admin"]
RunState = Literal["training", "finished", "diverged"]
Kind = Literal[
    "joined",
    "left",
    "refused",
    "paused",
    "resumed",
    "dropped",
    "config",
    "checkpoint",
    "evaluated",
    "round",
    "diverged",
    "finished",
    "warning",
]

BINS = 12
"""Of the histogram of staleness: 0, 1, 2-3, 4-7, ..., 512-1023, 1024 and more."""


class Row(NamedTuple):
    """A device. None where the server does not know."""

    id: int
    """The key."""
    name: str
    state: State
    """idle: connected, but silent for three times as long as it usually is."""
    class_: str | None
    """What kind of machine it says it is."""
    backend: str | None
    rate: float | None
    """Samples a second that arrive at it."""
    batch: int | None
    depth: int | None
    """Samples that wait in its buffer, and"""
    drops: int | None
    """those that the buffer had no room for."""
    last_seen: float | None
    """Unix time."""
    staleness: int | None
    """tau of its last update."""
    loss: float | None
    updates: int
    refused: int
    ingress: int
    """Bytes received from it, and"""
    egress: int
    """sent to it."""
    samples: int
    compressed: int
    """Updates that held a selection of the gradient."""
    cpu: float | None
    """Percent of all its cores."""
    ram: float | None
    """MiB that are used."""
    temperature: float | None
    """Degrees Celsius."""
    battery: float | None
    """Percent."""
    undervoltage: bool | None
    paused_because: str | None


class Evaluation(NamedTuple):
    """The model at `version` on held-out data; traffic in bytes since the run began."""

    version: int
    time: float
    loss: float | None
    accuracy: float | None
    ingress: int
    egress: int


class Event(NamedTuple):
    """Something that happened."""

    time: float
    kind: Kind
    device: str | None
    text: str


class Point(NamedTuple):
    """One update in the history of a device."""

    time: float
    loss: float | None
    staleness: int | None
    bytes: int
    """Received from it until then."""


@dataclass(frozen=True, slots=True)
class Run:
    """What does not change while a server runs."""

    run: str
    model: str
    parameters: int
    layout_size: int
    """Entries of the flat vector: parameters and running statistics."""
    updates_target: int
    """0: none."""
    config: dict[str, Any]
    """Section -> key -> value; without secrets."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The run as a whole, now."""

    version: int
    updates_per_s: float
    ingress: int
    egress: int
    ingress_rate: float
    """Bytes a second, over about ten seconds."""
    egress_rate: float
    dense_bytes: int
    """What the same updates would have cost as dense float32."""
    reduction: float | None
    """dense_bytes over what devices sent."""
    staleness: list[int]
    """Updates in each of BINS bins of tau."""
    devices: int
    connected: int
    cnc: float | None
    """Part of the updates that were compressed."""
    loss: float | None
    """Of training, averaged over the recent updates."""
    evaluation_failed: bool
    state: RunState
    shared_samples: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, as a watcher needs it to begin with."""

    time: float
    run: Run
    role: Role
    devices: tuple[Row, ...]
    overview: Overview
    evaluations: tuple[Evaluation, ...]
    """All of them, thinned if they are many."""
    events: tuple[Event, ...]
    """The newest ones."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What has changed since the frame before."""

    time: float
    overview: Overview
    devices: tuple[Row, ...]
    """Whole rows, of those devices that changed."""
    evaluations: tuple[Evaluation, ...]
    events: tuple[Event, ...]
    missed_events: int
    """Events that were dropped, because the watcher was too slow for them."""


Frame = Snapshot | Delta

COLUMNS = tuple(name.rstrip("_") for name in Row._fields)


def staleness_bin(tau: int) -> int:
    """The bin of a histogram that an update of staleness `tau` >= 0 counts in."""
    return min(tau.bit_length(), BINS - 1)


def finite(value: float | None) -> float | None:
    """The number, or None for what a frame cannot hold."""
    return value if value is not None and math.isfinite(value) else None


def encode(frame: Frame) -> bytes:
    """One frame as the payload of one WebSocket message."""
    entries: dict[str, Any] = {"type": type(frame).__name__.lower()}
    entries |= {field.name: getattr(frame, field.name) for field in fields(frame)}
    entries["overview"] = asdict(frame.overview)
    if isinstance(frame, Snapshot):
        entries["run"] = asdict(frame.run)
        entries["columns"] = COLUMNS
    octets: bytes = msgpack.packb(entries)
    return octets


def decode(octets: bytes) -> Frame:
    """The frame in `octets`. Raises Malformed."""
    try:
        entries = msgpack.unpackb(octets)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise Malformed(f"not one whole msgpack object: {error or type(error).__name__}") from error
    kind = entries.pop("type", None) if type(entries) is dict else None
    if kind == "snapshot":
        columns = entries.pop("columns", None)
        if columns != list(COLUMNS):
            raise Malformed(f"devices have columns {columns!r:.200}; this monitor knows {', '.join(COLUMNS)}")
        return _record(Snapshot, entries, "snapshot")
    if kind == "delta":
        return _record(Delta, entries, "delta")
    raise Malformed(f"a frame is a map of type snapshot or delta, not {kind!r:.40}")


def device_history(document: object) -> tuple[Row, tuple[Point, ...]]:
    """The answer of GET /v1/devices/NAME, read from JSON: a device and its recent updates. Raises Malformed.

    {"device": {column: value, ...}, "history": [[time, loss, staleness, bytes], ...]}
    """
    if type(document) is not dict or document.keys() != {"device", "history"}:
        raise Malformed("a device's history is an object of device and history")
    device = document["device"]
    if type(device) is not dict or device.keys() != set(COLUMNS):
        raise Malformed(f"device has the keys {', '.join(COLUMNS)}")
    (row,) = _rows(Row, [[device[name] for name in COLUMNS]], "device")
    return row, _rows(Point, document["history"], "history")


# Checks, from the types above.

Record = TypeVar("Record")
Tuple = TypeVar("Tuple", bound=tuple[Any, ...])


def _record(kind: type[Record], entries: object, name: str) -> Record:
    expected = _HINTS[kind]
    if type(entries) is not dict or entries.keys() != expected.keys():
        found = ", ".join(map(str, entries)) if type(entries) is dict else type(entries).__name__
        raise Malformed(f"{name} has the keys {', '.join(expected)}, not {found:.200}")
    return kind(**{key: _value(hint, entries[key], f"{name}.{key}") for key, hint in expected.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    if hint in _HINTS:
        return _record(hint, value, name)
    if get_origin(hint) is tuple:
        return _rows(get_args(hint)[0], value, name)
    if get_origin(hint) is dict:
        if type(value) is not dict or not all(type(section) is dict for section in value.values()):
            raise Malformed(f"{name} must map sections to their settings")
        return value
    if get_origin(hint) is list:
        if type(value) is not list or len(value) != BINS or set(map(type, value)) != {int}:
            raise Malformed(f"{name} must be {BINS} integers")
        return value
    _column(hint, (value,), name)
    return value


def _rows(kind: type[Tuple], value: object, name: str) -> tuple[Tuple, ...]:
    hints = _COLUMN_HINTS[kind]
    if type(value) is not list or not all(type(row) is list and len(row) == len(hints) for row in value):
        raise Malformed(f"{name} must be rows of {len(hints)} entries")
    for (column, hint), values in zip(hints.items(), zip(*value, strict=True), strict=False):
        _column(hint, values, f"{name}.{column}")
    make: Any = kind._make  # type: ignore[attr-defined]
    return tuple(map(make, value))


def _column(hint: Any, values: tuple[Any, ...], name: str) -> None:
    """Every value is of the type that `hint` says."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    found = set(map(type, values))
    if types.NoneType in options:
        found.discard(types.NoneType)
    (hint,) = (option for option in options if option is not types.NoneType)
    if get_origin(hint) is Literal:
        if found - {str} or (strange := set(values) - set(get_args(hint)) - {None}):
            shown = sorted(strange)[0] if not found - {str} else found
            raise Malformed(f"{name} must be one of {', '.join(get_args(hint))}, not {shown!r:.40}")
        return
    allowed = {int, float} if hint is float else {hint}
    if found - allowed:
        wrong = ", ".join(sorted(kind.__name__ for kind in found - allowed))
        raise Malformed(f"{name} must be {hint.__name__}, not {wrong}")
    if float in found and not all(math.isfinite(value) for value in values if value is not None):
        raise Malformed(f"{name} must be finite")


_HINTS: dict[Any, dict[str, Any]] = {kind: get_type_hints(kind) for kind in (Snapshot, Delta, Run, Overview)}
_COLUMN_HINTS: dict[Any, dict[str, Any]] = {
    kind: get_type_hints(kind) for kind in (Row, Evaluation, Event, Point)
}
