"""The part of protobuf's wire format that a graph needs, with one valid encoding for each message.

protobuf itself accepts unusual input: numbers longer than needed, unknown fields, repeats of a single field
(the last counts), and messages in pieces. Any of these can mislead a check for forbidden content. Here each
one is an error.

https://protobuf.dev/programming-guides/encoding/ describes the format.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from edgeflock.shared.errors import BadGraph

VARINT, OCTETS, FIXED32 = 0, 2, 5
"""Wire types: a number, a length and that number of bytes, four bytes."""

_LARGEST_FIELD = (1 << 29) - 1
_LONGEST_VARINT = 10


class Field(NamedTuple):
    """A field that a message may have."""

    name: str
    wire_type: int
    repeated: bool = False


Value = int | bytes

Fields = Mapping[int, Field]
"""Number -> field."""


def read(octets: bytes, fields: Fields, message: str) -> dict[str, list[Value]]:
    """Return the values of a message by field: integers (0 to 2^64 - 1), or bytes for OCTETS and FIXED32.

    A field has no values if it is absent, and at most one unless it is repeated. `message` names the message
    in errors. Raises BadGraph.
    """
    values: dict[str, list[Value]] = {field.name: [] for field in fields.values()}
    for number, wire_type, value in pieces(octets, message):
        field = fields.get(number)
        if field is None:
            raise BadGraph(f"{message} has a field {number}, which none may have")
        if wire_type != field.wire_type:
            raise BadGraph(f"{message}: {field.name} is of wire type {wire_type}, not {field.wire_type}")
        if values[field.name] and not field.repeated:
            raise BadGraph(f"{message} has two of {field.name}")
        values[field.name].append(value)
    return values


def signed(number: int) -> int:
    """The int64 that the varint `number` stands for."""
    return number - (1 << 64) if number >> 63 else number


def field(number: int, value: int | bytes | str) -> bytes:
    """Encode one field: an int64 as a varint, anything else as bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    octets = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | OCTETS) + varint(len(octets)) + octets


def fixed32(number: int, octets: bytes) -> bytes:
    """Encode one field of four bytes."""
    return varint(number << 3 | FIXED32) + octets


def varint(number: int) -> bytes:
    """Encode `number`, 0 to 2^64 - 1, seven bits a byte, the lowest first."""
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def pieces(octets: bytes, message: str) -> Iterator[tuple[int, int, Value]]:
    """(field number, wire type, value), one after the other."""
    offset = 0
    while offset < len(octets):
        tag, offset = _varint(octets, offset, message)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _LARGEST_FIELD:
            raise BadGraph(f"{message} has a field {number}, which is no number of a field")
        if wire_type == VARINT:
            value, offset = _varint(octets, offset, message)
            yield number, wire_type, value
            continue
        if wire_type == OCTETS:
            length, offset = _varint(octets, offset, message)
        elif wire_type == FIXED32:
            length = 4
        else:
            raise BadGraph(f"{message} has a field of wire type {wire_type}, which none is of")
        if length > len(octets) - offset:
            raise BadGraph(f"{message} is cut short")
        yield number, wire_type, octets[offset : offset + length]
        offset += length


def _varint(octets: bytes, offset: int, message: str) -> tuple[int, int]:
    """(the number that begins at `offset`, where it ends)."""
    number = 0
    for length in range(_LONGEST_VARINT):
        if offset + length >= len(octets):
            raise BadGraph(f"{message} is cut short")
        octet = octets[offset + length]
        number |= (octet & 0x7F) << 7 * length
        if octet < 0x80:
            if (octet == 0 and length) or number >> 64:
                break
            return number, offset + length + 1
    raise BadGraph(f"{message} has a number in a longer form than it needs")
