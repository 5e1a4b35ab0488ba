"""Knowledge about a tensor before a step runs, and helpers with which rules read their inputs.

A rule is a function (node, inputs) -> the results' types and shapes (shapes.py). An omitted
input is None. If a shape is the value of another tensor, that value must be known. With an unknown shape, a
step could take any amount of memory. Rules may raise any of MISFITS for inputs that do not fit together.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from numpy.typing import NDArray

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.graph import Node

Shape = tuple[int, ...]

MISFITS = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError, AttributeError)


class TensorInfo(NamedTuple):
    """The type and shape of a tensor, and its entries if they are known."""

    type: int
    shape: Shape
    entries: NDArray[Any] | None = None
    """The entries, if they depend on shapes alone and are few."""

    def numbers(self) -> list[int]:
        """Return the entries of a shape, of axes or of bounds. Raises BadGraph if they are unknown."""
        if self.entries is None:
            raise BadGraph("a shape in it depends on values, so its size is unknown before it runs")
        return [int(number) for number in self.entries.ravel()]


Inputs = Sequence[Any]
"""A TensorInfo for each input, None for an omitted one, then None for every further index."""

Rule = Callable[[Node, Inputs], list[TensorInfo]]


def is_small(shape: Sequence[int]) -> bool:
    """Whether a tensor is small enough to keep its entries."""
    return prod(shape) <= 1 << 12


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """Return axes counted from 0. Raises ValueError if one is out of range or occurs twice."""
    found = [axis + rank if axis < 0 else axis for axis in axes]
    if any(not 0 <= axis < rank for axis in found) or len(set(found)) < len(found):
        raise ValueError(f"axes {list(axes)} of {rank}")
    return found


def non_negative(sizes: Sequence[int]) -> Shape:
    """Return `sizes`. Raises ValueError if one is below 0."""
    if any(size < 0 for size in sizes):
        raise ValueError(f"a shape of {list(sizes)}")
    return tuple(sizes)


def integer(node: Node, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise ValueError(f"it lacks {name}")
    return value


def integers(node: Node, name: str, default: Shape) -> Shape:
    value: Any = node.attributes.get(name, default)
    if not isinstance(value, tuple) or len(value) != len(default or value):
        raise ValueError(f"{name} is {value}")
    return value
