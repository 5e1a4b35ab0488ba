"""What the numbers of a run's samples are, so that every device reads its own data alike."""

import math
from typing import Any, NamedTuple

from edgeflock.shared.errors import Malformed

MOST = 1 << 14
"""Columns, and classes."""
LONGEST = 200
"""Characters of a name."""


class Description(NamedTuple):
    """Of the server's held-out data; devices follow it."""

    columns: tuple[str, ...] = ()
    """The names of a sample's numbers, in their order; none if they have none."""
    means: tuple[float, ...] = ()
    """Of each number, in float32, and"""
    spreads: tuple[float, ...] = ()
    """its standard deviation: samples are trained on as (x - mean) / spread. Empty: as they are."""
    labels: tuple[str, ...] = ()
    """The names of the classes 0, 1, ...; none if they are numbers already."""
    numbers: bool = False
    """Whether targets are numbers rather than classes."""

    @property
    def told(self) -> "Description | None":
        """What others must know to read their data alike; None if there is nothing that they do not see."""
        return self if self.columns or self.labels else None

    @classmethod
    def of(cls, value: Any, name: str = "data") -> "Description":
        """[columns, means, spreads, labels, numbers] as msgpack unpacked it. Raises Malformed if it is
        anything else.
        """
        if type(value) is not list or [type(field) for field in value] != [list, list, list, list, bool]:
            raise Malformed(f"{name} must be [columns, means, spreads, labels, numbers]")
        columns, means, spreads, labels, numbers = value
        for what, names in (("columns", columns), ("labels", labels)):
            if not all(type(one) is str and 0 < len(one) <= LONGEST and one.isprintable() for one in names):
                raise Malformed(f"{name}.{what} must be names of 1 to {LONGEST} printable characters")
            if len(set(names)) < len(names) or len(names) > MOST:
                raise Malformed(f"{name}.{what} must be different names, {MOST} at most")
        for what, units in (("means", means), ("spreads", spreads)):
            if not all(type(unit) is float and math.isfinite(unit) for unit in units) or len(units) > MOST:
                raise Malformed(f"{name}.{what} must be finite floats, {MOST} at most")
        if len(means) != len(spreads) or (columns and len(means) not in (0, len(columns))):
            raise Malformed(f"{name} must have as many means as spreads, and as many as columns")
        if not all(spread > 0 for spread in spreads):
            raise Malformed(f"{name}.spreads must be above 0")
        return cls(tuple(columns), tuple(means), tuple(spreads), tuple(labels), numbers)
