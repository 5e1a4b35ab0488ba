"""msgpack of the other end, unpacked within bounds: a list takes one byte on the wire and 56 in memory."""

from dataclasses import dataclass
from typing import Any

import msgpack

from edgeflock.shared.errors import Malformed


@dataclass(frozen=True, slots=True)
class AllocationLimits:
    """What is allocated for a message beside its bytes."""

    containers: int
    """Lists and maps, at most."""
    array: int
    """Elements of one list."""
    map: int
    """Entries of one map."""
    text: int
    """Bytes of one."""


def unpacked(octets: bytes | memoryview, bounds: AllocationLimits, what: str) -> Any:
    """The one object in `octets`, which are `what`. Raises Malformed."""
    try:
        return msgpack.unpackb(octets, **options(bounds, what))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise malformed(what, error) from error


def options(bounds: AllocationLimits, what: str) -> dict[str, Any]:
    """The same for an Unpacker, over all that it unpacks. It raises what `malformed` is to make Malformed."""
    containers = 0

    def count(container: Any) -> Any:
        nonlocal containers
        containers += 1
        if containers > bounds.containers:
            raise Malformed(f"{what} holds at most {bounds.containers} lists and maps")
        return container

    return {
        "max_array_len": bounds.array,
        "max_map_len": bounds.map,
        "max_str_len": bounds.text,
        "max_ext_len": 0,
        "list_hook": count,
        "object_hook": count,
    }


def malformed(what: str, error: Exception) -> Malformed:
    """What msgpack raises, in words."""
    return Malformed(f"{what} is not one whole msgpack object: {str(error) or type(error).__name__}")
