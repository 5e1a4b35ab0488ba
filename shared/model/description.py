"""Description of the numbers in a run's samples, so that every device reads its own data alike."""

import math
from typing import Any, NamedTuple

from edgeflock.shared.errors import Malformed

MAX_NAMES = 1 << 14
"""The most columns, and the most classes."""
MAX_CATEGORIES = 100
"""The most categories of one column."""
LONGEST = 200
"""The most characters of a name."""


_LARGE, _SMALL = 10.0, 0.05
"""Larger typical targets make steps too large at the usual rates; smaller ones are lost in noise."""


def need_scaling(mean: float, deviation: float) -> bool:
    """Whether models learn targets of this mean and deviation badly, by their root mean square."""
    magnitude = math.hypot(mean, deviation)
    return math.isfinite(magnitude) and not _SMALL <= magnitude <= _LARGE


class Description(NamedTuple):
    """Description of the server's held-out data, which devices follow."""

    columns: tuple[str, ...] = ()
    """The names of a sample's numbers, in order; empty: they have none."""
    means: tuple[float, ...] = ()
    """The mean of each number, in float32, and"""
    spreads: tuple[float, ...] = ()
    """its standard deviation: models train on (x - mean) / spread. Empty: on x itself."""
    labels: tuple[str, ...] = ()
    """The names of the classes 0, 1, ...; empty if classes are numbers already."""
    numbers: bool = False
    """Whether targets are numbers rather than classes."""
    target: tuple[float, ...] = ()
    """(mean, deviation) of the targets, in float32: models learn (y - mean) / deviation. Empty: y itself."""
    categories: tuple[tuple[str, ...], ...] = ()
    """The names of the categories of each column, none for numbers; empty: all columns are numbers. A column
    of k categories is k inputs: 1 for the sample's own, 0 for the others. All 0: none of them."""

    @property
    def reported(self) -> "Description | None":
        """The description that others need to read their data alike; None if it has no such information."""
        return self if self.columns or self.labels or self.target else None

    @property
    def inputs(self) -> int:
        """The number of a model's inputs for a sample; each column has one or more."""
        return len(self.columns) + sum(len(names) - 1 for names in self.categories if names)

    @property
    def fields(self) -> list[Any]:
        """The fields for msgpack and JSON, without empty last ones."""
        fields = [*self]
        while len(fields) > _MIN_FIELDS and not fields[-1]:
            del fields[-1]
        return fields

    @classmethod
    def from_msgpack(cls, value: Any, name: str = "data") -> "Description":
        """Parse [columns, means, spreads, labels, numbers, target, categories] as unpacked from msgpack.

        The last two may be left out. Raises Malformed for any other value.
        """
        kinds = [list, list, list, list, bool, list, list]
        types = [type(field) for field in value] if type(value) is list else []
        if len(types) < _MIN_FIELDS or types != kinds[: len(types)]:
            raise Malformed(f"{name} must be [columns, means, spreads, labels, numbers, target, categories]")
        columns, means, spreads, labels, numbers, target, categories = (value + [[], []])[: len(kinds)]
        for key, names in (("columns", columns), ("labels", labels)):
            _check_names(f"{name}.{key}", names, MAX_NAMES)
        for key, units in (("means", means), ("spreads", spreads), ("target", target)):
            if (
                not all(type(unit) is float and math.isfinite(unit) for unit in units)
                or len(units) > MAX_NAMES
            ):
                raise Malformed(f"{name}.{key} must be finite floats, {MAX_NAMES} at most")
        if len(means) != len(spreads) or (columns and len(means) not in (0, len(columns))):
            raise Malformed(f"{name} must have as many means as spreads, and as many as columns")
        if len(target) not in (0, 2) or (target and not numbers):
            raise Malformed(f"{name}.target must be the mean and the deviation of numbers, or empty")
        if not all(spread > 0 for spread in (*spreads, *target[1:])):
            raise Malformed(f"{name}.spreads must be above 0")
        if categories and len(categories) != len(columns):
            raise Malformed(f"{name} must have as many categories as columns, or none")
        for names in categories:
            if type(names) is not list:
                raise Malformed(f"{name}.categories must be lists of names")
            _check_names(f"{name}.categories", names, MAX_CATEGORIES)
        named = tuple(tuple(names) for names in categories)
        units = tuple(means), tuple(spreads)
        return cls(tuple(columns), *units, tuple(labels), numbers, tuple(target), named)


_MIN_FIELDS = 5
"""The number of fields that are always present."""


def _check_names(name: str, names: list[Any], limit: int) -> None:
    if not all(type(one) is str and 0 < len(one) <= LONGEST and one.isprintable() for one in names):
        raise Malformed(f"{name} must be names of 1 to {LONGEST} printable characters")
    if len(set(names)) < len(names) or len(names) > limit:
        raise Malformed(f"{name} must be different names, {limit} at most")
