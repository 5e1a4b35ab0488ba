"""A training step or an evaluation as a list of operators; reading.py and writing.py convert its bytes."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FLOAT, INT32, INT64, BOOL, DOUBLE = 1, 6, 7, 9, 11
"""ONNX's numbers of element types (TensorProto.DataType)."""

TYPES: dict[int, np.dtype[np.generic]] = {
    FLOAT: np.dtype("<f4"),
    INT32: np.dtype("<i4"),
    INT64: np.dtype("<i8"),
    BOOL: np.dtype("?"),
    DOUBLE: np.dtype("<f8"),
}
"""The element types that a graph may have."""

OPSET, IR_VERSION = 20, 10


class GraphConstant(NamedTuple):
    """A constant."""

    type: int
    shape: tuple[int, ...]
    octets: bytes
    """Little-endian, in C order."""

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
