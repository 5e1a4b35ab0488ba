"""Items to bytes and back: a message is a msgpack array of arrays [tag, field, ...]."""

from collections.abc import Iterable
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed
from edgeflock.shared.protocol.gateway.of_gateways import OF_GATEWAYS, OfGateway
from edgeflock.shared.protocol.gateway.of_leaders import OF_LEADERS, OfLeader

LONGEST = 1 << 20
"""Bytes of items that share a message. One that is longer has a message of its own."""

Item = OfGateway | OfLeader

_KINDS: dict[int, type[Item]] = dict(enumerate((*OF_GATEWAYS, *OF_LEADERS), 1))
_TAGS = {kind: tag for tag, kind in _KINDS.items()}


def _types_of(hint: Any) -> frozenset[type]:
    """Of the values that a field may have: of list[int] list, of str | None both."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return frozenset(get_origin(option) or option for option in options)


_TYPES: dict[int, list[frozenset[type]]] = {
    tag: [_types_of(hint) for hint in get_type_hints(kind).values()] for tag, kind in _KINDS.items()
}


def packed(item: Item) -> bytes:
    """One item, to go into a message."""
    octets: bytes = msgpack.packb((_TAGS[type(item)], *item))
    return octets


def message(items: Iterable[bytes]) -> bytes:
    """A message of packed items."""
    parts = list(items)
    return b"".join((b"\xdd", len(parts).to_bytes(4, "big"), *parts))


def batch(outbox: list[bytes]) -> tuple[list[bytes], int]:
    """What goes with one message, taken from the outbox, and its bytes."""
    size, count = 0, 0
    for octets in outbox:
        if count and size + len(octets) > LONGEST:
            break
        size, count = size + len(octets), count + 1
    taken = outbox[:count]
    del outbox[:count]
    return taken, size


def items(octets: bytes, taken: tuple[type[Item], ...]) -> list[Item]:
    """The items of a message, each one of `taken`. Raises Malformed."""
    try:
        arrays = msgpack.unpackb(octets)
        return [_item(array, taken) for array in arrays]
    except Malformed:
        raise
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise Malformed(
            f"no message between a gateway and a leader: {error or type(error).__name__}"
        ) from error


def numbers(octets: bytes, kind: str) -> NDArray[Any]:
    """A copy of the numbers in a field, of a numpy type such as <f4. Raises Malformed."""
    try:
        return np.frombuffer(octets, kind).copy()
    except ValueError as error:
        raise Malformed(f"{len(octets)} bytes are no numbers of the type {kind}") from error


def _item(array: list[object], taken: tuple[type[Item], ...]) -> Item:
    tag = array[0] if type(array) is list and array else None
    kind = _KINDS.get(tag) if type(tag) is int else None
    if kind is None or kind not in taken or len(array) != len(_TYPES[_TAGS[kind]]) + 1:
        raise Malformed(f"no item of a gateway's line, or out of turn: {tag!r:.40}")
    fields = array[1:]
    for value, name, types in zip(fields, kind._fields, _TYPES[_TAGS[kind]], strict=True):
        if type(value) not in types or (type(value) is int and value < 0):
            raise Malformed(f"{kind.__name__}.{name} is a {type(value).__name__}")
    return kind(*fields)  # type: ignore[arg-type]  # looked at just now
