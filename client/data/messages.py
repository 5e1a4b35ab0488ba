"""Decodes sensor messages and groups them into chunks of samples.

A message is one sample: a msgpack map or a JSON object (UTF-8) of at most RECORD_BYTES:

    key       msgpack                                        JSON
    x         bin: float32, little-endian, in C order        a number or nested lists of numbers
              or as in JSON
    shape     list of integers, optional                     the same
    y         integer: a class; float: a target;             the same
              or a list of either, one for each position
    key       text or integer, optional: names the sample    the same

`shape` is the shape of one sample. Without it bytes are a flat list, and nested lists define it. A first byte
below 0x80 means JSON; msgpack maps begin with 0x80..0x8F, 0xDE or 0xDF. Other keys are ignored.
Example: {"x": [0.5, 1], "y": 0} in JSON, or in msgpack, with x as bytes:

    82 a1 78 c4 08 00 00 00 3f 00 00 80 3f a1 79 00

The value that x= names may be a text: a category, if the run's column holds categories
(shared/data/texts.py). Options of the source's URI read other formats:

    x=temperature,air.humidity     the paths of one or more numbers; a dot leads into an object
    y=state, key=id                the paths of the target and the key
    names=idle,running             names of the classes 0, 1, ..., if y is text
    missing=mean                   of a message that lacks some of several x: they count as the run's mean, or
                                   as none of its categories; or drop, as without it: the message is set
                                   aside; or error: the client ends
    join=60                        x and y may come in messages apart, with the same key, e.g. if a meter's
                                   target is known a minute later. Two such messages make one sample. Halves
                                   wait for this many seconds, and take at most JOIN_BYTES. Beyond these
                                   limits the oldest are dropped first.
"""

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.data.records import RECORD_BYTES, Broken, Skipped, StreamChunk
from edgeflock.shared.data.texts import encode_text, is_missing
from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.schema import AllocationLimits, unpack
from edgeflock.shared.protocol.shown import printable

KEY_LENGTH = 200
"""Maximum length of a key, in characters."""

_BOUNDS = AllocationLimits(containers=1 << 14, array=RECORD_BYTES, map=1 << 10, text=RECORD_BYTES)
"""Few nested lists are longer than a row of an image."""

INCOMPLETE = "incomplete"
"""The kind of a record that lacks values."""

Target = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """The contents of a message, without the axis of samples."""

    x: NDArray[np.float32] | None
    y: Target | None
    key: str | None
    """None: the sample has no key."""


@dataclass(frozen=True, slots=True)
class FieldPaths:
    """The paths of values in a message."""

    x: tuple[str, ...] = ("x",)
    y: str = "y"
    key: str = "key"
    names: tuple[str, ...] = ()
    missing: str = "drop"
    """Policy for a message that lacks some of x: one of texts.POLICIES."""

    def read(self, message: Mapping[str, Any]) -> SampleMessage:
        """Read a message. Raises Broken if it is not usable."""
        found = [_drop_marker(value_at(message, name)) for name in self.x]
        lacking = [name for name, value in zip(self.x, found, strict=True) if value is None]
        if len(lacking) == len(self.x):
            found = []
        elif lacking and self.missing != "mean":
            raise Broken(
                INCOMPLETE,
                f"of {', '.join(self.x)} only some are there, {', '.join(lacking)} not; missing=mean takes "
                "the run's means in their place",
            )
        y = value_at(message, self.y)
        if not found and y is None:
            raise Broken(
                INCOMPLETE, f"there is no {', '.join(self.x)} and no {self.y}{_other_fields(message)}"
            )
        return SampleMessage(
            _numbers(found, self.x, message.get("shape") if self.x == ("x",) else None) if found else None,
            None if y is None else self._target(y),
            _key(value_at(message, self.key)),
        )

    def _target(self, y: Any) -> Target:
        if isinstance(y, str) and self.names:
            if y not in self.names:
                raise Broken("of another target", f"{self.y} is {y[:40]!r}, none of {', '.join(self.names)}")
            y = self.names.index(y)
        return _target(_array(y, self.y))


def decode(message: bytes, fields: FieldPaths) -> SampleMessage:
    """Decode and read the bytes of a message. Raises Broken."""
    if len(message) > RECORD_BYTES:
        raise Broken("too large", f"{len(message)} bytes; at most {RECORD_BYTES} are taken")
    try:
        read = json.loads(message) if message[:1] < b"\x80" else unpack(message, _BOUNDS, "a message")
    except Malformed as error:
        raise Broken("unreadable", f"neither msgpack nor JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        place = getattr(error, "pos", 0)
        rest = message.decode(errors="replace")[place : place + 40]
        raise Broken("unreadable", f"the text is no JSON from character {place + 1} on: {rest!r}") from error
    if not isinstance(read, dict):
        raise Broken("incomplete", f"a record is a map with {', '.join(fields.x)} and {fields.y}")
    return fields.read(read)


def group_records(records: Iterable[SampleMessage]) -> list[StreamChunk]:
    """Group whole records into chunks, in order. Consecutive records of one kind share a chunk."""
    chunks = []
    for _, group in groupby(records, key=_kind):
        alike = list(group)
        x = np.stack([record.x for record in alike if record.x is not None])
        y = np.stack([record.y for record in alike if record.y is not None])
        chunks.append(StreamChunk(x, _target(y), tuple(record.key for record in alike)))
    return chunks


def _kind(record: SampleMessage) -> tuple[object, ...]:
    assert record.x is not None
    assert record.y is not None
    return record.x.shape, record.y.shape, record.y.dtype.kind


def value_at(message: Mapping[str, Any], path: str) -> Any:
    """Return the value at `path`, or None. A name with a dot may also be a key."""
    if path in message:
        return message[path]
    value: Any = message
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _other_fields(message: Mapping[str, Any]) -> str:
    """Name the fields of a message that has none of the expected ones, and the options that choose them."""
    if not message:
        return ""
    there = f"; it has {', '.join(map(str, message))}"
    names = [name for name, value in message.items() if isinstance(value, int | float | str)]
    *x, y = names[:8] if len(names) > 1 else ("a.b", "a.c")
    return printable(f"{there}: choose with x= and y=, as in ?x={','.join(x)}&y={y}")


def _drop_marker(value: Any) -> Any:
    """Return the value, or None if it is a text that means a missing value."""
    return None if isinstance(value, str) and is_missing(value) else value


def _key(value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is int:
        value = str(value) if abs(value) < 1 << 64 else "0" * (KEY_LENGTH + 1)
    if not isinstance(value, str) or len(value) > KEY_LENGTH:
        raise Broken("of a wrong key", f"a key is an integer, or text of up to {KEY_LENGTH} characters")
    return value


def _numbers(values: list[Any], names: tuple[str, ...], shape: Any) -> NDArray[np.float32]:
    if names != FieldPaths().x:
        values = [_code(value) for value in values]
    arrays = [_array(value, name, octets=True) for value, name in zip(values, names, strict=True)]
    joined = arrays[0] if len(arrays) == 1 else np.concatenate([array.ravel() for array in arrays])
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, and Checks finds them
        return _reshape(joined.astype(np.float32), shape)


def _code(value: Any) -> Any:
    """Return the number that stands for a text or a missing value."""
    return encode_text(value or "") if value is None or isinstance(value, str) else value


def _array(value: Any, name: str, *, octets: bool = False) -> NDArray[Any]:
    """Return numbers as an array of their own type."""
    if isinstance(value, bytes) and octets:
        if len(value) % 4:
            raise Broken("not numbers", f"{name} has {len(value)} bytes, which are no float32")
        return np.frombuffer(value, "<f4")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise Broken("not numbers", f"{name}: {error}") from error
    if array.dtype.kind == "u" and array.itemsize < 8:  # from a generator: messages have no such type
        array = array.astype(np.int64)
    if array.dtype.kind not in "if":
        raise Broken("not numbers", f"{name} is no number and no regular list of numbers")
    return array


def _reshape(x: NDArray[np.float32], shape: Any) -> NDArray[np.float32]:
    if shape is None:
        return x
    sizes: list[Any] = shape if isinstance(shape, list) and len(shape) <= 16 else [None]
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) != x.size:
        raise Broken("of a wrong shape", f"shape {str(shape)[:80]} for {x.size} numbers")
    return x.reshape(sizes)


def _target(y: NDArray[Any]) -> Target:
    return y.astype(np.float32) if y.dtype.kind == "f" else y.astype(np.int64)


JOIN_BYTES = 1 << 24
"""Limit on the bytes of waiting halves, including OVERHEAD for each."""

OVERHEAD = 512
"""Bytes that a half takes in addition to its numbers."""


class Joining:
    """Holds halves until their partners arrive."""

    def __init__(self, seconds: float, tally: Skipped) -> None:
        """`seconds` is the longest wait of a half. 0: halves are refused at once."""
        self._seconds = seconds
        self._tally = tally
        self._halves: OrderedDict[str, tuple[float, SampleMessage]] = OrderedDict()
        """Oldest first, each with its arrival time."""
        self.octets = 0
        """Bytes of the waiting halves."""

    def __len__(self) -> int:
        """The number of waiting halves."""
        return len(self._halves)

    def join(self, records: Iterable[SampleMessage], now: float) -> list[SampleMessage]:
        """Return the `records` that are whole, or completed by a waiting half. `now` is in seconds."""
        whole = []
        for record in records:
            try:
                joined = self._join(record, now)
            except Broken as broken:
                self._tally.add(broken.kind, broken.detail)
                continue
            if joined is not None:
                whole.append(joined)
        self._drop_expired(now)
        return whole

    def _join(self, record: SampleMessage, now: float) -> SampleMessage | None:
        if record.x is not None and record.y is not None:
            return record
        if not self._seconds or record.key is None:
            missing = "x" if record.x is None else "y"
            remedy = "; with join=, x and y may come apart, each with a key" if record.key is not None else ""
            raise Broken("incomplete", f"there is no {missing}{remedy}")
        before = self._pop(record.key)
        if before is not None:
            if before.x is None and record.x is not None:
                return SampleMessage(record.x, before.y, record.key)
            if before.y is None and record.y is not None:
                return SampleMessage(before.x, record.y, record.key)
            self._tally.add("of a key in use", f"{record.key}: the same half came twice")
        self._halves[record.key] = (now, record)
        self.octets += _octets(record)
        return None

    def _drop_expired(self, now: float) -> None:
        while self._halves:
            key, (arrived, record) = next(iter(self._halves.items()))
            if now - arrived <= self._seconds and self.octets <= JOIN_BYTES:
                return
            missing = "x" if record.x is None else "y"
            self._tally.add(f"without its {missing}", f"{key}: it did not come in time, or too many wait")
            self._pop(key)

    def _pop(self, key: str) -> SampleMessage | None:
        _, record = self._halves.pop(key, (0.0, None))
        if record is not None:
            self.octets -= _octets(record)
        return record


def _octets(record: SampleMessage) -> int:
    return OVERHEAD + sum(half.nbytes for half in (record.x, record.y) if half is not None)
