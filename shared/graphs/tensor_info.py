"""What is known of a tensor before anything is computed, and how a rule reads what it is given.

A rule is a function (node, what it takes) -> the results' types and shapes (shapes.py, products.py). What an
operator leaves out is None. Where a shape is the value of another tensor, that must be known; a step of which
it is not could take any amount of memory. Rules may raise anything of MISFITS for what does not fit together.
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
    """What is known of a tensor before anything is computed."""

    type: int
    shape: Shape
    known: NDArray[Any] | None = None
    """Its entries, where they depend on shapes alone and are few."""

    def numbers(self) -> list[int]:
        """The entries of one whose values are a shape, axes or bounds. Raises BadGraph if nobody knows."""
        if self.known is None:
            raise BadGraph("a shape in it depends on values, so that nobody can tell how large it becomes")
        return [int(number) for number in self.known.ravel()]


Given = Sequence[Any]
"""A TensorInfo for each input, None for one left out, then None for every further index."""

Rule = Callable[[Node, Given], list[TensorInfo]]


def few(shape: Sequence[int]) -> bool:
    """Whether the entries of a tensor are worth to be known."""
    return prod(shape) <= 1 << 12


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """From 0 on. Raises ValueError if one is none, or is there twice."""
    found = [axis + rank if axis < 0 else axis for axis in axes]
    if any(not 0 <= axis < rank for axis in found) or len(set(found)) < len(found):
        raise ValueError(f"axes {list(axes)} of {rank}")
    return found


def no_less(sizes: Sequence[int]) -> Shape:
    """`sizes`, none of which is below 0."""
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
