"""Writer of graphs: a ModelProto in one form, without texts that are only for people."""

import struct
from collections.abc import Mapping
from types import MappingProxyType

from edgeflock.shared.graphs.graph import IR_VERSION, OPSET, Attribute, Graph, GraphConstant, Node, Port
from edgeflock.shared.graphs.protobuf import OCTETS, field, fixed32, pieces

_NAME = "step"
"""ONNX requires a name for a graph."""

_METADATA = 14
"""The field of a model with its metadata."""

_EXTERNAL = 1
"""The location of a tensor's bytes in a file (TensorProto.DataLocation)."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


def write(graph: Graph, metadata: Mapping[str, str] = _NOTHING) -> bytes:
    """Encode `graph` as ONNX. reading.read makes the same graph of it, if there is no `metadata`."""
    model = field(1, IR_VERSION) + field(7, _graph(graph)) + field(8, field(1, "") + field(2, OPSET))
    return model + b"".join(
        field(_METADATA, field(1, key) + field(2, value)) for key, value in metadata.items()
    )


def metadata_of(model: bytes) -> dict[str, str]:
    """Return the metadata of a serialised model, without a look at its graph. Raises BadGraph."""
    found = {}
    for number, kind, entry in pieces(model, "the model"):
        if number == _METADATA and kind == OCTETS and isinstance(entry, bytes):
            parts = {key: part for key, _, part in pieces(entry, "an entry of the metadata")}
            found[_text(parts.get(1))] = _text(parts.get(2))
    return found


def without_metadata(model: bytes) -> bytes:
    """Return a model that `write` made, as `write` makes it without metadata. Raises BadGraph."""
    kept = ((number, value) for number, _, value in pieces(model, "the model") if number != _METADATA)
    return b"".join(field(number, value) for number, value in kept)


def _text(value: int | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _graph(graph: Graph) -> bytes:
    parts = [
        *(field(1, _node(node)) for node in graph.nodes),
        field(2, _NAME),
        *(field(5, _tensor(tensor, name)) for name, tensor in graph.constants.items()),
        *(field(11, _port(port)) for port in graph.inputs),
        *(field(12, _port(port)) for port in graph.outputs),
    ]
    return b"".join(parts)


def _node(node: Node) -> bytes:
    return b"".join(
        (
            *(field(1, name) for name in node.inputs),
            *(field(2, name) for name in node.outputs),
            field(4, node.operator),
            *(field(5, _attribute(name, value)) for name, value in node.attributes.items()),
        )
    )


def _attribute(name: str, value: Attribute) -> bytes:
    head = field(1, name)
    if isinstance(value, int):
        return head + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return head + fixed32(2, struct.pack("<f", value)) + field(20, 1)
    if isinstance(value, bytes):
        return head + field(4, value) + field(20, 3)
    if isinstance(value, GraphConstant):
        return head + field(5, _tensor(value)) + field(20, 4)
    if isinstance(value, Graph):
        return head + field(6, _graph(value)) + field(20, 5)
    return head + b"".join(field(8, number) for number in value) + field(20, 7)


def _tensor(tensor: GraphConstant, name: str = "") -> bytes:
    content = field(9, tensor.octets)
    if tensor.place is not None:
        keys = zip(("location", "offset", "length"), map(str, tensor.place), strict=True)
        content = b"".join(field(13, field(1, key) + field(2, value)) for key, value in keys)
        content += field(14, _EXTERNAL)
    return b"".join(
        (
            *(field(1, dimension) for dimension in tensor.shape),
            field(2, tensor.type),
            field(8, name) if name else b"",
            content,
        )
    )


def _port(port: Port) -> bytes:
    dimensions = b"".join(
        field(1, field(1 if isinstance(dimension, int) else 2, dimension)) for dimension in port.shape
    )
    kind = field(1, port.type) + field(2, dimensions)
    return field(1, port.name) + field(2, field(1, kind))
