"""A training step or an evaluation as a list of operators; reading.py and writing.py convert its bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadGraph

FLOAT, INT8, INT32, INT64, BOOL, DOUBLE = 1, 3, 6, 7, 9, 11
"""ONNX's numbers of element types (TensorProto.DataType)."""

TYPES: dict[int, np.dtype[np.generic]] = {
    FLOAT: np.dtype("<f4"),
    INT32: np.dtype("<i4"),
    INT64: np.dtype("<i8"),
    BOOL: np.dtype("?"),
    DOUBLE: np.dtype("<f8"),
}
"""The element types that a server's graph may have. Only a frozen base has INT8 (frozen.py)."""

OPSET, IR_VERSION = 20, 10


class GraphConstant(NamedTuple):
    type: int
    shape: tuple[int, ...]
    octets: bytes
    """Little-endian, in C order."""
    place: tuple[str, int, int] | None = None
    """Or where they are: the name of a file, the first byte, and how many."""

    def array(self) -> NDArray[np.generic]:
        """Return a read-only numpy array."""
        return np.frombuffer(self.octets, TYPES[self.type]).reshape(self.shape)


Attribute: TypeAlias = "int | bytes | float | tuple[int, ...] | GraphConstant | Graph"


class Node(NamedTuple):
    """An operator that makes `outputs` of `inputs`. An empty name stands for an omitted one."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]

    @property
    def body(self) -> "Graph | None":
        """The graph that a Scan runs once for each step."""
        body = self.attributes.get("body")
        return body if isinstance(body, Graph) else None

    def all_inputs(self) -> tuple[str, ...]:
        """Return `inputs`, and the outer names that its body takes."""
        if self.body is None:
            return self.inputs
        own = {port.name for port in self.body.inputs}
        own.update(name for node in self.body.nodes for name in node.outputs)
        outer = (name for node in self.body.nodes for name in node.inputs if name not in own)
        return (*self.inputs, *dict.fromkeys(outer))


class Port(NamedTuple):
    """An input or an output of the graph."""

    name: str
    type: int
    shape: tuple[int | str, ...]
    """A name stands for any size: the samples of a batch."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph. Nodes come after those that make their inputs; every name is made once, also in bodies."""

    nodes: tuple[Node, ...]
    constants: dict[str, GraphConstant]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


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
