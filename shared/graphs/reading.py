"""Reader of graphs: bytes -> Graph, of a safe subset only.

A device need not trust its server. The subset has the fields of ONNX's protobuf that a Graph has, each in its
only encoding. It has the operators, attributes and element types of operators.TABLE, and constants with their
bytes inline. LIMITS bound all sizes. So there are no files, no functions, no other domains, no free text.
Graphs within graphs are bodies of Scans only, which have no constants and no further bodies.

The runtime gets only the bytes that writing.write makes of the Graph. So another parser cannot find anything
in them that this reader did not find.
"""

import struct
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs import protobuf
from edgeflock.shared.graphs.graph import (
    BOOL,
    IR_VERSION,
    OPSET,
    TYPES,
    Attribute,
    Graph,
    GraphConstant,
    Node,
    Port,
)
from edgeflock.shared.graphs.operators import TABLE
from edgeflock.shared.graphs.protobuf import FIXED32, OCTETS, VARINT, Field, signed

LARGEST_GRAPH = 1 << 24
"""Bytes. The largest graph of the zoo has 49,507."""


class Limits(NamedTuple):
    """The size limits of a graph."""

    nodes: int = 1 << 15
    """The nodes, with those of bodies."""
    constants: int = 1 << 16
    ports: int = 20_002
    """The most inputs, and the most outputs."""
    operands: int = 1 << 12
    """The most inputs or outputs of a node, or numbers of an attribute."""
    rank: int = 8
    name: int = 1000
    """The most bytes of a name."""


LIMITS = Limits()

_MODEL = {
    1: Field("ir_version", VARINT),
    7: Field("graph", OCTETS),
    8: Field("opset_import", OCTETS, repeated=True),
}
_OPSET = {1: Field("domain", OCTETS), 2: Field("version", VARINT)}
_GRAPH = {
    1: Field("node", OCTETS, repeated=True),
    2: Field("name", OCTETS),
    5: Field("initializer", OCTETS, repeated=True),
    11: Field("input", OCTETS, repeated=True),
    12: Field("output", OCTETS, repeated=True),
}
_BODY = {number: field for number, field in _GRAPH.items() if field.name != "initializer"}
_NODE = {
    1: Field("input", OCTETS, repeated=True),
    2: Field("output", OCTETS, repeated=True),
    3: Field("name", OCTETS),
    4: Field("op_type", OCTETS),
    5: Field("attribute", OCTETS, repeated=True),
    7: Field("domain", OCTETS),
}
_ATTRIBUTE = {
    1: Field("name", OCTETS),
    2: Field("f", FIXED32),
    3: Field("i", VARINT),
    4: Field("s", OCTETS),
    5: Field("t", OCTETS),
    6: Field("g", OCTETS),
    8: Field("ints", VARINT, repeated=True),
    20: Field("type", VARINT),
}
_TENSOR = {
    1: Field("dims", VARINT, repeated=True),
    2: Field("data_type", VARINT),
    8: Field("name", OCTETS),
    9: Field("raw_data", OCTETS),
}
_PORT = {1: Field("name", OCTETS), 2: Field("type", OCTETS)}
_TYPE = {1: Field("tensor_type", OCTETS)}
_TENSOR_TYPE = {1: Field("elem_type", VARINT), 2: Field("shape", OCTETS)}
_SHAPE = {1: Field("dim", OCTETS, repeated=True)}
_DIMENSION = {1: Field("dim_value", VARINT), 2: Field("dim_param", OCTETS)}

KINDS = {"f": 1, "i": 2, "s": 3, "t": 4, "g": 5, "ints": 7}
"""The field of an attribute's value -> its type (AttributeProto.AttributeType)."""


def read(octets: bytes, limit: int = LARGEST_GRAPH) -> Graph:
    """Read the graph in a ModelProto of at most `limit` bytes. Raises BadGraph, which names the problem."""
    if len(octets) > limit:
        raise BadGraph(f"it has {len(octets)} bytes; at most {limit} are taken")
    model = protobuf.read(octets, _MODEL, "the model")
    if _one(model, "ir_version", "the model") != IR_VERSION:
        raise BadGraph(f"its ir_version is {model['ir_version'][0]!r}, not {IR_VERSION}")
    _check_opset(model["opset_import"])
    graph = _graph(_one(model, "graph", "the model"), _GRAPH, "the graph")
    _check_count(LIMITS.nodes, [*all_nodes(graph)], "the nodes of the graph and its bodies")
    _check_order(graph, set(), set())
    return graph


def _graph(octets: Any, fields: protobuf.Fields, label: str) -> Graph:
    parts = protobuf.read(octets, fields, label)
    _name(_one(parts, "name", label), f"{label}'s name")
    for part, limit in (
        ("node", LIMITS.nodes),
        ("initializer", LIMITS.constants),
        ("input", LIMITS.ports),
        ("output", LIMITS.ports),
    ):
        _check_count(limit, parts.get(part, []), f"{label}'s {part}s")
    return Graph(
        tuple(_node(node, in_body=fields is _BODY) for node in parts["node"]),
        _constants(parts.get("initializer", [])),
        tuple(map(_port, parts["input"])),
        tuple(map(_port, parts["output"])),
    )


def all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        if node.body is not None:
            yield from all_nodes(node.body)


def _check_opset(imports: list[Any]) -> None:
    if len(imports) != 1:
        raise BadGraph(f"it imports {len(imports)} sets of operators, not one")
    opset = protobuf.read(imports[0], _OPSET, "opset_import")
    if opset["domain"] not in ([], [b""]):
        raise BadGraph(f"it imports operators of {_name(opset['domain'][0], 'a domain')}, not of ONNX")
    if _one(opset, "version", "opset_import") != OPSET:
        raise BadGraph(f"it imports operators of version {opset['version'][0]!r}, not {OPSET}")


def _node(octets: Any, *, in_body: bool) -> Node:
    """Read a node; `in_body`: whether it is in a body."""
    parts = protobuf.read(octets, _NODE, "a node")
    operator = _name(_one(parts, "op_type", "a node"), "an operator")
    form = TABLE.get(operator)
    if form is None:
        raise BadGraph(f"it has an operator {operator}, which no training step needs")
    if in_body and "g" in form.attributes.values():
        raise BadGraph(f"it has a body within a body ({operator}), which no training step needs")
    if parts["domain"] not in ([], [b""]):
        raise BadGraph(f"{operator} is of another domain than ONNX")
    for operands, limit in (("input", form.inputs), ("output", form.outputs)):
        _check_count(
            LIMITS.operands if limit is None else limit, parts[operands], f"{operator}'s {operands}s"
        )
    attributes: dict[str, Attribute] = {}
    for part in parts["attribute"]:
        name, value = _attribute(part, operator)
        if name in attributes:
            raise BadGraph(f"{operator} has two of the attribute {name}")
        attributes[name] = value
    return Node(
        operator,
        tuple(_name(name, f"an input of {operator}") for name in parts["input"]),
        tuple(_name(name, f"an output of {operator}") for name in parts["output"]),
        attributes,
    )


def _attribute(octets: Any, operator: str) -> tuple[str, Attribute]:
    parts = protobuf.read(octets, _ATTRIBUTE, f"an attribute of {operator}")
    name = _name(_one(parts, "name", f"an attribute of {operator}"), f"an attribute of {operator}")
    label = f"{operator}'s attribute {name}"
    kind = TABLE[operator].attributes.get(name)
    if kind is None:
        raise BadGraph(f"{operator} has an attribute {name}, which none needs")
    if _one(parts, "type", label) != KINDS[kind]:
        raise BadGraph(f"{label} is of type {parts['type'][0]!r}, not {KINDS[kind]}")
    for other in KINDS:
        if other != kind and parts[other]:
            raise BadGraph(f"{label} has a value in {other}, too")
    if kind == "ints":
        _check_count(LIMITS.operands, parts[kind], label)
        numbers: list[Any] = parts[kind]
        return name, tuple(map(signed, numbers))
    value: Any = _one(parts, kind, label)
    if kind == "i":
        return name, signed(value)
    if kind == "f":
        return name, _float(value)
    if kind == "s":
        if value not in TABLE[operator].texts:
            raise BadGraph(f"{label} is {_shown(value)}, which none needs")
        return name, value
    return name, _graph(value, _BODY, label) if kind == "g" else _tensor(value, label)[1]


def _constants(parts: list[Any]) -> dict[str, GraphConstant]:
    constants: dict[str, GraphConstant] = {}
    for part in parts:
        name, tensor = _tensor(part, "a constant")
        if not name or name in constants:
            raise BadGraph(f"it has two constants of the name {name!r}" if name else "a constant has no name")
        constants[name] = tensor
    return constants


def _tensor(octets: Any, label: str) -> tuple[str, GraphConstant]:
    """(its name, empty if it has none, the tensor)."""
    parts = protobuf.read(octets, _TENSOR, label)
    name = _name(parts["name"][0], label) if parts["name"] else ""
    kind: Any = _one(parts, "data_type", label)
    if kind not in TYPES:
        raise BadGraph(f"{label} {name} has entries of type {kind}, which none needs")
    shape = _shape(parts["dims"], f"{label} {name}")
    data: Any = _one(parts, "raw_data", f"{label} {name}")
    if len(data) != prod(shape) * TYPES[kind].itemsize:
        raise BadGraph(f"{label} {name} has {len(data)} bytes for a shape of {list(shape)}")
    if kind == BOOL and data.translate(None, b"\0\1"):
        raise BadGraph(f"{label} {name} has a truth that is neither 0 nor 1")
    return name, GraphConstant(kind, shape, data)


def _shape(dimensions: list[Any], label: str) -> tuple[int, ...]:
    _check_count(LIMITS.rank, dimensions, f"the dimensions of {label}")
    shape = tuple(map(signed, dimensions))
    if any(not 0 <= dimension < 1 << 40 for dimension in shape):
        raise BadGraph(f"{label} has a shape of {list(shape)}")
    return shape


def _port(octets: Any) -> Port:
    parts = protobuf.read(octets, _PORT, "an input or output")
    name = _name(_one(parts, "name", "an input or output"), "an input or output")
    of_type = protobuf.read(_one(parts, "type", name), _TYPE, f"the type of {name}")
    tensor = protobuf.read(_one(of_type, "tensor_type", name), _TENSOR_TYPE, f"the type of {name}")
    kind: Any = _one(tensor, "elem_type", name)
    if kind not in TYPES:
        raise BadGraph(f"{name} has entries of type {kind}, which none needs")
    dimensions = protobuf.read(_one(tensor, "shape", name), _SHAPE, f"the shape of {name}")["dim"]
    _check_count(LIMITS.rank, dimensions, f"the dimensions of {name}")
    return Port(name, kind, tuple(_dimension(dimension, name) for dimension in dimensions))


def _dimension(octets: Any, name: str) -> int | str:
    parts = protobuf.read(octets, _DIMENSION, f"a dimension of {name}")
    if parts["dim_value"] and parts["dim_param"]:
        raise BadGraph(f"a dimension of {name} is both a number and a name")
    if parts["dim_param"]:
        return _name(parts["dim_param"][0], f"a dimension of {name}")
    return _shape([_one(parts, "dim_value", f"a dimension of {name}")], name)[0]


def _check_order(graph: Graph, outer: set[str], all_names: set[str]) -> None:
    """Check that every name is made once, and before its use; names of a body are used in that body only.

    `outer` has the outer names that the graph may use, `all_names` all names so far.
    """
    visible = {*outer, *graph.constants}
    all_names.update(graph.constants)
    for port in graph.inputs:
        _define(port.name, visible, all_names)
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in visible:
                raise BadGraph(f"{node.operator} takes {name}, which nothing before it makes")
        if node.body is not None:
            _check_order(node.body, visible, all_names)
        for name in filter(None, node.outputs):
            _define(name, visible, all_names)
    outputs: set[str] = set()
    for port in graph.outputs:
        if port.name not in visible or port.name in outer:
            raise BadGraph(f"it gives {port.name}, which nothing makes")
        _define(port.name, outputs, set())


def _define(name: str, visible: set[str], all_names: set[str]) -> None:
    if not name or name in all_names or name in visible:
        raise BadGraph(f"it has two of the name {name}" if name else "an input has no name")
    visible.add(name)
    all_names.add(name)


def _one(parts: dict[str, list[Any]], field: str, label: str) -> Any:
    if not parts[field]:
        raise BadGraph(f"{label} has no {field}")
    return parts[field][0]


def _check_count(limit: int, values: list[Any], label: str) -> None:
    if len(values) > limit:
        raise BadGraph(f"{label} are {len(values)}; at most {limit} are taken")


def _name(octets: Any, label: str) -> str:
    try:
        name: str = octets.decode()
    except UnicodeDecodeError:
        name = "\n"
    if len(octets) > LIMITS.name or not name.isprintable():
        raise BadGraph(f"{label} has a name that is too long, or no text: {_shown(octets)}")
    return name


def _float(octets: Any) -> float:
    (number,) = struct.unpack("<f", octets)
    value: float = number
    return value


def _shown(octets: bytes) -> str:
    return f"{octets[:40]!r}"
