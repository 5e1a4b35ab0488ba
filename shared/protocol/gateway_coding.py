"""Coding of the items between a gateway and its leader: a message is a msgpack array of [tag, field, ...].

No announced size allocates more than the message's own length. Items are counted before they are unpacked,
each is unpacked in its turn, and the content of each is bounded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.gateway import GATEWAY, OF_GATEWAYS, OF_LEADERS, OfGateway, OfLeader, Sync
from edgeflock.shared.protocol.schema import AllocationLimits, malformed_error, options, unpack

LONGEST = 1 << 20
"""The most bytes of items that share a message. A longer item has its own message."""

MAX_ITEMS = 1 << 12
"""The most items of a message."""

HEAD = 5
"""The bytes of a message before its items."""

OVERHEAD = 64
"""The most bytes of an item around a device's record."""

_ARRAY = b"\xdd"
"""The first byte of a message: a msgpack array with a length of four bytes."""


_NAME = "an item of a gateway's connection"

_LISTS = 2
"""The lists of an item: itself, and one of its fields."""

_OF_GATEWAYS = AllocationLimits(containers=_LISTS, array=16, map=0, text=1 << 13)
"""The limits suit the fields of an item and the headers of a request."""

_OF_LEADERS = AllocationLimits(containers=_LISTS, array=1 << 20, map=0, text=1 << 20)
"""The limits suit the versions of a Change and a run's settings."""

Item = OfGateway | OfLeader

_FIRST_OF_LEADERS = 12
"""A leader's first item has the same tag in all versions, because it carries the version."""

_KINDS: dict[int, type[Item]] = {
    **dict[int, type[Item]](enumerate(OF_GATEWAYS, 1)),
    **dict[int, type[Item]](enumerate(OF_LEADERS, _FIRST_OF_LEADERS)),
}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}

_LARGEST_INTEGER = (1 << 63) - 1


def _types_of(hint: Any) -> dict[type, type | None]:
    """Return type of the field's value -> type of a list's entries; list[int] | None gives both."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return {get_origin(option) or option: next(iter(get_args(option)), None) for option in options}


_TYPES: dict[int, list[dict[type, type | None]]] = {
    tag: [_types_of(hint) for hint in get_type_hints(kind).values()] for tag, kind in _KINDS.items()
}


def pack(item: Item) -> bytes:
    """Encode one item for a message."""
    octets: bytes = msgpack.packb((_TAGS[type(item)], *item))
    return octets


def message(items: Iterable[bytes]) -> bytes:
    """Join packed items to a message."""
    parts = list(items)
    return b"".join((_ARRAY, len(parts).to_bytes(HEAD - 1, "big"), *parts))


def batch(outbox: list[bytes]) -> tuple[list[bytes], int]:
    """Take the items of the next message from the outbox; return them and their bytes."""
    size, count = 0, 0
    for octets in outbox[:MAX_ITEMS]:
        if count and size + len(octets) > LONGEST:
            break
        size, count = size + len(octets), count + 1
    chunk = outbox[:count]
    del outbox[:count]
    return chunk, size


def items(octets: bytes, kinds: tuple[type[Item], ...]) -> Iterator[Item]:
    """Yield the items of a message one by one; each is of a type in `kinds`. Raises Malformed."""
    count = int.from_bytes(octets[1:HEAD], "big")
    if len(octets) < HEAD or octets[:1] != _ARRAY or count > MAX_ITEMS:
        raise Malformed(f"no message between a gateway and a leader, which has at most {MAX_ITEMS} items")
    if count == 1:
        yield item(memoryview(octets)[HEAD:], kinds)
        return
    if len(octets) > HEAD + LONGEST:
        raise Malformed(f"the items that share a message have at most {LONGEST} bytes")
    bounds = replace(_bounds_of(kinds), containers=_LISTS * count)
    unpacker = msgpack.Unpacker(max_buffer_size=HEAD + LONGEST, **options(bounds, _NAME))
    unpacker.feed(octets[HEAD:])
    for _ in range(count):
        try:
            array = unpacker.unpack()
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise malformed_error(_NAME, error) from error
        yield _item(array, kinds)
    if unpacker.tell() != len(octets) - HEAD:
        raise Malformed("bytes follow the last item of a message")


def item(octets: bytes | memoryview, kinds: tuple[type[Item], ...]) -> Item:
    """Decode one packed item of a type in `kinds`. Raises Malformed."""
    return _item(unpack(octets, _bounds_of(kinds), _NAME), kinds)


def _bounds_of(kinds: tuple[type[Item], ...]) -> AllocationLimits:
    return _OF_GATEWAYS if kinds is OF_GATEWAYS else _OF_LEADERS


def numbers(octets: bytes, kind: str) -> NDArray[Any]:
    """Return a copy of the numbers in a field, of a numpy type such as <f4. Raises Malformed."""
    try:
        return np.frombuffer(octets, kind).copy()
    except ValueError as error:
        raise Malformed(f"{len(octets)} bytes are no numbers of the type {kind}") from error


def _item(array: object, kinds: tuple[type[Item], ...]) -> Item:
    fields: list[Any] = array if type(array) is list and array else [None]
    tag = fields[0]
    kind = _KINDS.get(tag) if type(tag) is int else None
    if kind is Sync and kind in kinds and len(fields) > 1 and fields[1] != GATEWAY:
        raise Malformed(f"the leader's line is of version {fields[1]!r:.40}, this gateway's {GATEWAY}")
    if kind is None or kind not in kinds or len(fields) != len(_TYPES[tag]) + 1:
        raise Malformed(f"no item of a gateway's connection, or out of turn: {tag!r:.40}")
    del fields[0]
    for value, name, types in zip(fields, kind._fields, _TYPES[tag], strict=True):
        if type(value) not in types or not _is_good(value, types[type(value)]):
            raise Malformed(f"{kind.__name__}.{name} is a {type(value).__name__}, or out of range")
    return kind(*fields)


def _is_good(value: object, entry_type: type | None) -> bool:
    """Whether an integer is in range, and a list has only valid entries of the type `entry_type`."""
    if type(value) is list:
        return all(type(entry) is entry_type and _is_good(entry, None) for entry in value)
    return type(value) is not int or 0 <= value <= _LARGEST_INTEGER
