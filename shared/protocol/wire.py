"""Coding of records: one msgpack array [tag, field, ...] in one WebSocket message.

No I/O. Unknown input is refused: an unknown tag, another number of fields, a field of another type, bytes
after the end. No announced size allocates more than the frame's own length.

A loss travels as a level, in sixteenths of an octave: steps of about 2%, too small for operators to notice.
In msgpack a loss from 1/4 to 245 takes one byte, one from 1/256 takes two, and a float takes five.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

import msgpack

from edgeflock.shared.errors import Malformed, UnexpectedRecord, UnknownRecord
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.held_out import Sketch
from edgeflock.shared.model.lora import Base
from edgeflock.shared.model.personal import Personal
from edgeflock.shared.model.start import Start, Weights
from edgeflock.shared.protocol.messages import (
    LONGEST_REASON,
    LONGEST_SHARDS,
    ORDER,
    TAGS,
    USUAL,
    Goodbye,
    Model,
    Receipt,
    Record,
    Refusal,
    Stop,
    SumTerms,
    Update,
    Welcome,
)
from edgeflock.shared.protocol.schema import AllocationLimits, Check, check_for, exact_type, unpack

_MOST_FACTS, _LONGEST_FACT = 32, 100
"""The most facts of a device, and characters of a name or a text: a server keeps them for each device."""

_MAP = 2 * _MOST_FACTS
"""The bound of a map is larger, so that the error for a few facts too many names the field."""

_OF_DEVICES = AllocationLimits(containers=3, array=16, map=_MAP, text=LONGEST_SHARDS)
"""A record, its facts, and a Model in a Receipt. A device name has 200 characters."""

_BOUNDS = {
    Welcome: AllocationLimits(containers=1 << 16, array=1 << 16, map=_MAP, text=1 << 12),
    Refusal: AllocationLimits(containers=1, array=5, map=_MAP, text=1 << 16),
    Stop: AllocationLimits(containers=1, array=2, map=_MAP, text=1 << 16),
}
"""A Welcome has three lists for each tensor."""

_HEAD = 32
"""The most bytes before the end of a record's tag, in any encoding."""

_SHORT_ARRAY = 0x90
"""The first byte of an array of up to 15 elements holds their number. An integer below 128 is one byte."""

_NO_RECORD = "a record is a msgpack array that begins with its type tag"

_LARGEST_INTEGER = (1 << 63) - 1


def encode(record: Record) -> bytes:
    """Encode one record as the payload of one WebSocket message. Floats travel as float32."""
    octets: bytes = msgpack.packb(_array(record), use_single_float=True)
    return octets


def size(record: Record) -> int:
    """Return len(encode(record)) without a copy of a model's values."""
    model = record.model if isinstance(record, Receipt) else record
    if not isinstance(model, Model) or len(model.values) < 1 << 16:
        return len(encode(record))
    stub = replace(model, values=bytes(1 << 16))  # its length field has five bytes as well
    rest = len(encode(replace(record, model=stub) if isinstance(record, Receipt) else stub))
    return rest - (1 << 16) + len(model.values)


def decode(octets: bytes, kinds: Collection[type[Record]] = tuple(TAGS)) -> Record:
    """Decode the record in `octets`. Raises Malformed or UnknownRecord; UnexpectedRecord if not in `kinds`.

    The kind of record and its number of fields are checked first: they determine the limits of the rest.
    """
    kind, announced = _kind_of(octets)
    if kind not in kinds:
        raise UnexpectedRecord(f"a {kind.__name__} is not accepted at this point")
    missing = len(_FIELDS[kind]) + 1 - announced
    if not 0 <= missing <= len(USUAL[kind]):
        raise Malformed(f"{kind.__name__} has {len(_FIELDS[kind])} fields, not {announced - 1}")
    return _record(unpack(octets, _BOUNDS.get(kind, _OF_DEVICES), f"a {kind.__name__}"))


def _kind_of(octets: bytes) -> tuple[type[Record], int]:
    """(the kind of the record, the number of elements that its array announces)."""
    if len(octets) > 1 and octets[0] & 0xF0 == _SHORT_ARRAY and (usual := _KINDS.get(octets[1])) is not None:
        return usual, octets[0] & 0x0F
    head = msgpack.Unpacker(max_buffer_size=_HEAD)
    head.feed(octets[:_HEAD])
    try:
        announced, tag = head.read_array_header(), head.unpack()
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise Malformed(_NO_RECORD) from error
    if type(tag) is not int:
        raise Malformed(_NO_RECORD)
    kind = _KINDS.get(tag)
    if kind is None:
        raise UnknownRecord(f"record type {tag} is unknown; known are {sorted(_KINDS)}")
    return kind, announced


def framed_size(payload: int, *, masked: bool) -> int:
    """Return the bytes on the socket of an unfragmented WebSocket message (RFC 6455, section 5.2).

    Devices mask their messages; servers do not.
    """
    extended = 0 if payload < 126 else 2 if payload < 1 << 16 else 8
    return 2 + extended + 4 * masked + payload


def _array(record: Record) -> list[Any]:
    kind = type(record)
    array = [TAGS[kind], *map(partial(getattr, record), ORDER[kind])]
    for usual in reversed(USUAL[kind]):
        if array[-1] != usual:
            break
        del array[-1]
    if isinstance(record, Update):
        array[_LOSS] = level(record.loss)
    elif isinstance(record, Welcome) and record.data is not None and len(array) > _DATA:
        array[_DATA] = record.data.fields
    elif isinstance(record, Receipt) and record.model is not None:
        _, version, *rest = _array(record.model)
        array[_MODEL] = [version - record.version, *rest]
    return array


def _record(array: object) -> Record:
    if not isinstance(array, list) or not array or type(array[0]) is not int:
        raise Malformed(_NO_RECORD)
    kind = _KINDS[array[0]]
    expected, usual = _FIELDS[kind], USUAL[kind]
    missing = len(expected) + 1 - len(array)
    if 0 < missing <= len(usual):
        array.extend(usual[-missing:])
    if len(array) != len(expected) + 1:
        raise Malformed(f"{kind.__name__} has {len(expected)} fields, not {len(array) - 1}")
    del array[0]
    checked = {field: check(value, name) for (field, name, check), value in zip(expected, array, strict=True)}
    if kind is Model:
        checked["base"] = _base(checked["version"], checked.pop("behind"))
    elif kind is Receipt and checked["model"] is not None:
        checked["model"] = _model_after(checked["version"], checked["model"])
    return kind(**checked)


def _base(version: int, distance: int | None) -> int | None:
    if distance is not None and distance > version:
        raise Malformed(f"Model.behind must be at most its version, {version}, not {distance}")
    return None if distance is None else version - distance


def _model_after(version: int, fields: list[Any]) -> Record:
    """Return the Model of these fields, whose version counts from `version` on."""
    difference = _integer(fields[0] if fields else None, "Receipt.model.version")
    return _record([TAGS[Model], version + difference, *fields[1:]])


def _integer(value: Any, name: str) -> Any:
    if type(value) is not int or not 0 <= value <= _LARGEST_INTEGER:
        raise Malformed(f"{name} must be an integer of 0 to 2^63 - 1, not {_shown(value)}")
    return value


def _number(value: Any, name: str) -> float:
    """Check a number. Infinity and NaN pass, because admission decides about them."""
    if type(value) is not float and type(value) is not int:
        raise Malformed(f"{name} must be a number, not {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """Return a scalar as text, or a container's type: its nesting may be too deep to print."""
    return f"{value!r:.40}" if isinstance(value, int | float | str) else type(value).__name__


def _facts(value: Any, name: str) -> Any:
    if type(value) is not dict or not all(
        type(k) is str and (type(v) in (str, int) or (type(v) is float and math.isfinite(v)))
        for k, v in value.items()
    ):
        raise Malformed(f"{name} must map names to text or finite numbers")
    texts = (text for pair in value.items() for text in pair if type(text) is str)
    if len(value) > _MOST_FACTS or any(len(text) > _LONGEST_FACT for text in texts):
        raise Malformed(
            f"{name} has at most {_MOST_FACTS} entries, whose names and texts are of at most "
            f"{_LONGEST_FACT} characters"
        )
    return value


def _level(value: Any, name: str) -> float:
    if value is not None and (type(value) is not int or not -MAX_LEVEL <= value <= MAX_LEVEL):
        raise Malformed(
            f"{name} must be an integer of {-MAX_LEVEL} to {MAX_LEVEL} or nil, not {_shown(value)}"
        )
    return loss_of(value)


def _fields_of_a_model(value: Any, name: str) -> Any:
    # Only these are decoded further, so that nothing nests deeper than a Model in a Receipt.
    if value is not None and type(value) is not list:
        raise Malformed(f"{name} must be the fields of a Model or nil, not {_shown(value)}")
    return value


def _reason(value: Any, name: str) -> str:
    if type(value) is not str or len(value) > LONGEST_REASON:
        raise Malformed(f"{name} must be text of at most {LONGEST_REASON} characters")
    return value


def _shape(value: Any, name: str) -> tuple[int, ...]:
    if type(value) is not list:
        raise Malformed(f"{name} must be a list of integers or nil, not {_shown(value)}")
    return tuple(_integer(size, name) for size in value)


_CHECKS: dict[Any, Check] = {
    int: _integer,
    float: _number,
    dict: _facts,
    list: exact_type(list),
    tuple: _shape,
    Start: Start.from_msgpack,
    Description: Description.from_msgpack,
    Weights: Weights.from_msgpack,
    Sketch: Sketch.from_msgpack,
    Personal: Personal.from_msgpack,
    Base: Base.from_msgpack,
    SumTerms: SumTerms.from_msgpack,
}
"""Checks that do more than compare types; readers of a Welcome check its layout themselves."""

_KINDS: dict[int, type[Record]] = {tag: kind for kind, tag in TAGS.items()}
_SPECIAL: dict[tuple[type[Record], str], Check] = {
    (Model, "behind"): check_for(int | None, _CHECKS),
    (Update, "loss"): _level,
    (Receipt, "model"): _fields_of_a_model,
    (Goodbye, "reason"): _reason,
}
_LOSS = 1 + ORDER[Update].index("loss")
_DATA = 1 + ORDER[Welcome].index("data")
_MODEL = 1 + ORDER[Receipt].index("model")


def _fields_of(kind: type[Record]) -> list[tuple[str, str, Check]]:
    """(field, its name in a refusal, its check)."""
    hints = get_type_hints(kind)
    return [
        (field, f"{kind.__name__}.{field}", _SPECIAL.get((kind, field)) or check_for(hints[field], _CHECKS))
        for field in ORDER[kind]
    ]


_FIELDS: dict[type[Record], list[tuple[str, str, Check]]] = {kind: _fields_of(kind) for kind in TAGS}


MAX_LEVEL = 2400
"""A level is -MOST to MOST. -MOST stands for 0 and for all smaller losses."""


def level(loss: float) -> int | None:
    """Return the level of a loss; None if the loss is not finite."""
    if not math.isfinite(loss):
        return None
    return -MAX_LEVEL if loss <= 0 else min(max(round(16 * math.log2(loss)), -MAX_LEVEL), MAX_LEVEL)


def loss_of(level: int | None) -> float:
    """Return the loss of a level of -MOST to MOST; NaN for None."""
    if level is None:
        return math.nan
    return 0.0 if level == -MAX_LEVEL else 2.0 ** (level / 16)
