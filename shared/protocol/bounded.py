"""Unpack msgpack from the other end within limits: a list takes one byte on the wire and 56 in memory."""

from dataclasses import dataclass
from typing import Any

import msgpack

from edgeflock.shared.errors import Malformed


@dataclass(frozen=True, slots=True)
class AllocationLimits:
    """Limits on the memory that a message takes in addition to its bytes."""

    containers: int
    """The most lists and maps."""
    array: int
    """The most elements of one list."""
    map: int
    """The most entries of one map."""
    text: int
    """The most bytes of one text."""


def unpack(octets: bytes | memoryview, bounds: AllocationLimits, name: str) -> Any:
    """Unpack the one object in `octets`; `name` names it in errors. Raises Malformed."""
    try:
        return msgpack.unpackb(octets, **options(bounds, name))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise malformed_error(name, error) from error


def options(bounds: AllocationLimits, name: str) -> dict[str, Any]:
    """Options for an Unpacker; the limits cover all that it unpacks. `malformed` converts its errors."""
    containers = 0

    def count(container: Any) -> Any:
        nonlocal containers
        containers += 1
        if containers > bounds.containers:
            raise Malformed(f"{name} holds at most {bounds.containers} lists and maps")
        return container

    return {
        "max_array_len": bounds.array,
        "max_map_len": bounds.map,
        "max_str_len": bounds.text,
        "max_ext_len": 0,
        "list_hook": count,
        "object_hook": count,
    }


def malformed_error(name: str, error: Exception) -> Malformed:
    """Convert an error of msgpack to Malformed."""
    return Malformed(f"{name} is not one whole msgpack object: {str(error) or type(error).__name__}")
