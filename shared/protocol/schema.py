"""Checks that values unpacked from msgpack or JSON match a record's type hints.

A check takes a value and its name, and returns the value or raises Malformed. It compares exact types: True
is not an int, and 1 is a float only where a check allows it. Checks are built once, from the hints. For a
meaning beyond the type (a range, a nested record), the caller adds `special` checks.

Unpack msgpack from the other end within limits: a list takes one byte on the wire and 56 in memory.
"""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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


Check = Callable[[Any, str], Any]
"""(value, its name) -> the value. Raises Malformed."""

Row = TypeVar("Row", bound=tuple[Any, ...])


def checks_of(kind: type, special: Mapping[Any, Check]) -> dict[str, Check]:
    """Field -> its check, for the fields of `kind` in order: a dataclass or a NamedTuple."""
    return {name: check_for(hint, special) for name, hint in get_type_hints(kind).items()}


def check_for(hint: Any, special: Mapping[Any, Check]) -> Check:
    """Return the check of a value: that in `special`, else that of its type, or of a Literal's names.

    `special` has checks by hint or by its origin (dict of dict[str, int]). Numbers must be finite. None
    passes where the hint allows it.
    """
    present, optional = _unwrap_optional(hint)
    check = special.get(present) or special.get(get_origin(present)) or _scalar(present)
    return (lambda value, name: None if value is None else check(value, name)) if optional else check


def rows_for(kind: type[Row]) -> Callable[[Any, str], tuple[Row, ...]]:
    """Return the check of a list of rows, column by column, which returns NamedTuples of `kind`.

    A field with a default is not a column.
    """
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]  # of any NamedTuple
    columns = {name: _column(hint) for name, hint in get_type_hints(kind).items() if name not in defaults}

    def check(value: Any, name: str) -> tuple[Row, ...]:
        if type(value) is not list or not all(
            type(row) is list and len(row) == len(columns) for row in value
        ):
            raise Malformed(f"{name} must be rows of {len(columns)} entries")
        for (column, check), entries in zip(columns.items(), zip(*value, strict=True), strict=False):
            check(entries, f"{name}.{column}")
        return tuple(starmap(kind, value))

    return check


def _scalar(hint: Any) -> Check:
    if isinstance(hint, type) and hint is not float:
        return exact_type(hint)
    column = _column(hint)
    return lambda value, name: column((value,), name)[0]


def exact_type(expected: type) -> Check:
    """Return the check that a value has this type, with any content."""

    def check(value: Any, name: str) -> Any:
        if type(value) is not expected:
            raise Malformed(f"{name} must be {expected.__name__}, not {type(value).__name__}")
        return value

    return check


def _column(hint: Any) -> Check:
    """Return the check of a tuple of values, several times as fast as one by one. An int is a float."""
    present, optional = _unwrap_optional(hint)
    names = get_args(present) if get_origin(present) is Literal else ()
    allowed = {str} if names else {int, float} if present is float else {present}
    allowed |= {types.NoneType} if optional else set()
    wanted = f"one of {', '.join(names)}" if names else present.__name__

    def check(values: tuple[Any, ...], name: str) -> tuple[Any, ...]:
        found = set(map(type, values))
        if found - allowed:
            wrong = ", ".join(sorted(kind.__name__ for kind in found - allowed))
            raise Malformed(f"{name} must be {wanted}, not {wrong}")
        if names and (strange := set(values) - {*names, None}):
            raise Malformed(f"{name} must be {wanted}, not {sorted(strange)[0]!r:.40}")
        if float in found and not all(math.isfinite(value) for value in values if value is not None):
            raise Malformed(f"{name} must be finite")
        return values

    return check


def _unwrap_optional(hint: Any) -> tuple[Any, bool]:
    """(X, True) for X | None, else (the hint, False)."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    (present,) = (option for option in get_args(hint) if option is not types.NoneType)
    return present, True
