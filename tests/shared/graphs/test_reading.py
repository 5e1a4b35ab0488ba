"""What a graph may be made of: exported ones are read, and written as they were; all else is refused."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs import reading
from edgeflock.shared.graphs.protobuf import field, fixed32, varint
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write
from tests.client.backends.graphs import model
from tests.fuzzing.graphs import CORPUS, GRAPHS, damaged_graphs, survived

EXPORTED = sorted(GRAPHS.glob("*.onnx"))


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_what_the_exporter_wrote_is_read_and_written_to_the_same_bytes(path: Path) -> None:
    octets = path.read_bytes()
    assert write(read(octets)) == octets
    onnx.checker.check_model(onnx.load_from_string(octets), full_check=True)


def test_it_says_what_onnx_says() -> None:
    theirs, ours = onnx.load_from_string(model()), read(model())
    assert [node.operator for node in ours.nodes] == [node.op_type for node in theirs.graph.node]
    assert [node.inputs for node in ours.nodes] == [tuple(node.input) for node in theirs.graph.node]
    for constant in theirs.graph.initializer:
        np.testing.assert_array_equal(
            ours.constants[constant.name].array(), numpy_helper.to_array(constant), strict=True
        )
    again = onnx.load_from_string(write(ours))
    assert again.graph.node == theirs.graph.node
    assert again.graph.input == theirs.graph.input
    assert again.graph.output == theirs.graph.output


Change = Callable[[onnx.ModelProto], object]

CHANGES: dict[str, tuple[Change, str]] = {
    "an older set of operators": (lambda m: setattr(m.opset_import[0], "version", 18), "version 18, not 20"),
    "another set of operators": (
        lambda m: m.opset_import.add(domain="com.microsoft", version=1),
        "imports 2 sets",
    ),
    "only another set": (
        lambda m: setattr(m.opset_import[0], "domain", "ai.onnx.ml"),
        "operators of ai.onnx.ml",
    ),
    "no set": (lambda m: m.ClearField("opset_import"), "imports 0 sets"),
    "another form": (lambda m: setattr(m, "ir_version", 3), "ir_version is 3"),
    "a producer": (lambda m: setattr(m, "producer_name", "me"), "the model has a field 2"),
    "metadata": (lambda m: m.metadata_props.add(key="a", value="b"), "the model has a field 14"),
    "another training": (lambda m: m.training_info.add(), "the model has a field 20"),
    "functions": (lambda m: m.functions.add(name="f", domain="d"), "the model has a field 25"),
    "a sparse constant": (lambda m: m.graph.sparse_initializer.add(), "the graph has a field 15"),
    "a description": (lambda m: setattr(m.graph, "doc_string", "x"), "the graph has a field 10"),
    "shapes of values": (lambda m: m.graph.value_info.add(name="p"), "the graph has a field 13"),
    "a description of a node": (
        lambda m: setattr(m.graph.node[0], "doc_string", "x"),
        "a node has a field 6",
    ),
    "another domain": (
        lambda m: setattr(m.graph.node[0], "domain", "com.microsoft"),
        "Transpose is of another domain",
    ),
    "a node's overload": (lambda m: setattr(m.graph.node[0], "overload", "x"), "a node has a field 8"),
    "an unknown operator": (
        lambda m: setattr(m.graph.node[0], "op_type", "EyeLike"),
        "an operator EyeLike, which no training step needs",
    ),
    "another graph": (
        lambda m: m.graph.node[0].attribute.add(name="perm", type=5).g.SetInParent(),
        "Transpose's attribute perm is of type 5, not 7",
    ),
    "an unknown attribute": (
        lambda m: m.graph.node[0].attribute.append(helper.make_attribute("body", 1)),
        "Transpose has an attribute body",
    ),
    "an attribute of another type": (
        lambda m: m.graph.node[0].attribute.append(helper.make_attribute("perm", 1)),
        "perm is of type 2, not 7",
    ),
    "an attribute of two values": (
        lambda m: m.graph.node[5].attribute[0].__setattr__("f", 1.0),
        "keepdims has a value in f, too",
    ),
    "an attribute of a function's argument": (
        lambda m: setattr(m.graph.node[5].attribute[0], "ref_attr_name", "x"),
        "has a field 21",
    ),
    "an attribute twice": (
        lambda m: m.graph.node[5].attribute.append(helper.make_attribute("keepdims", 1)),
        "ReduceMean has two of the attribute keepdims",
    ),
    "more arguments than there are": (
        lambda m: m.graph.node[2].input.append("p"),
        "Add's inputs are 3; at most 2",
    ),
    "more results than there are": (
        lambda m: m.graph.node[2].output.append("q"),
        "Add's outputs are 2; at most 1",
    ),
    "what is not made yet": (
        lambda m: m.graph.node[0].input.__setitem__(0, "p"),
        "takes p, which nothing before it makes",
    ),
    "a name twice": (lambda m: m.graph.node[1].output.__setitem__(0, "wt"), "two of the name wt"),
    "an output that nothing makes": (
        lambda m: setattr(m.graph.output[0], "name", "nothing"),
        "gives nothing, which nothing makes",
    ),
    "a name that is too long": (
        lambda m: m.graph.node[0].output.__setitem__(0, "n" * 2000),
        "a name that is too long",
    ),
    "a name that rings": (lambda m: m.graph.node[0].output.__setitem__(0, "\a"), "or no text"),
    "external data": (
        lambda m: m.graph.initializer[0].external_data.add(key="location", value="/etc/passwd"),
        "a constant has a field 13",
    ),
    "data elsewhere": (
        lambda m: setattr(m.graph.initializer[0], "data_location", TensorProto.EXTERNAL),
        "a constant has a field 14",
    ),
    "a constant in parts": (
        lambda m: setattr(m.graph.initializer[0].segment, "begin", 0),
        "a constant has a field 3",
    ),
    "a constant's bytes twice": (
        lambda m: m.graph.initializer[0].int64_data.append(1),
        "a constant has a field 7",
    ),
    "a constant of text": (
        lambda m: setattr(m.graph.initializer[0], "data_type", TensorProto.STRING),
        "first has entries of type 8",
    ),
    "a constant of another size": (
        lambda m: m.graph.initializer[0].dims.append(1 << 30),
        r"first has 8 bytes for a shape of \[1, 1073741824\]",
    ),
    "a constant of less than nothing": (
        lambda m: m.graph.initializer[0].dims.extend([-1, -1]),
        r"has a shape of \[1, -1, -1\]",
    ),
    "a constant of many dimensions": (
        lambda m: m.graph.initializer[0].dims.extend([1] * 20),
        "dimensions of a constant first are 21",
    ),
    "a constant twice": (
        lambda m: m.graph.initializer.append(m.graph.initializer[0]),
        "two constants of the name 'first'",
    ),
    "an input that is a list": (
        lambda m: m.graph.input[0].type.sequence_type.elem_type.tensor_type.__setattr__("elem_type", 1),
        "has a field 4",
    ),
    "an input of half floats": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.FLOAT16),
        "theta/dense.weight has entries of type 10",
    ),
    "an input without a shape": (
        lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"),
        "theta/dense.weight has no shape",
    ),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_what_no_exporter_writes_is_refused(change: Change, said: str) -> None:
    proto = onnx.load_from_string(model())
    change(proto)
    with pytest.raises(BadGraph, match=said):
        read(proto.SerializeToString())


PARTS = field(1, 10), field(7, b""), field(8, field(2, 20))

SPELT: dict[str, tuple[bytes, str]] = {
    "a tag longer than it is": (b"\x88\x00\x0a", "longer form than it needs"),
    "the tag of external data, longer": (b"\x8a\x80\x80\x80\x10\x00", "a longer form|a field|no number"),
    "a length longer than it is": (PARTS[0] + b"\x3a\x80\x00", "longer form than it needs"),
    "a number longer than it is": (b"\x08\x8a\x80\x00", "longer form than it needs"),
    "a number of more than 64 bits": (b"\x08" + b"\xff" * 9 + b"\x02", "longer form than it needs"),
    "a number without an end": (b"\x08" + b"\xff" * 20, "longer form than it needs"),
    "half a number": (b"\x08\xff", "cut short"),
    "field 0": (b"\x00\x00", "no number of a field"),
    "field 2^32": (varint(1 << 35) + b"\x00", "no number of a field"),
    "a group": (b"\x0b\x0c", "wire type 3"),
    "eight bytes": (b"\x09" + bytes(8), "wire type 1"),
    "a number where bytes belong": (PARTS[0] + b"\x38\x01", "graph is of wire type 0, not 2"),
    "bytes where a number belongs": (b"\x0a\x01\x0a", "ir_version is of wire type 2, not 0"),
    "four bytes where a number belongs": (fixed32(1, bytes(4)), "ir_version is of wire type 5, not 0"),
    "one of a kind, twice": (PARTS[0] * 2, "the model has two of ir_version"),
    "two graphs": (PARTS[0] + PARTS[1] * 2, "the model has two of graph"),
    "more than there is": (b"\x3a\x05abc", "the model is cut short"),
    "much more than there is": (b"\x3a" + varint((1 << 64) - 1), "the model is cut short"),
    "no graph": (PARTS[0] + PARTS[2], "the model has no graph"),
    "a graph without a name": (b"".join(PARTS), "the graph has no name"),
}


@pytest.mark.parametrize(("octets", "said"), SPELT.values(), ids=SPELT.keys())
def test_what_protobuf_would_read_otherwise_is_refused(octets: bytes, said: str) -> None:
    with pytest.raises(BadGraph, match=said):
        read(octets)


def test_a_list_in_one_piece_is_refused() -> None:
    """protobuf takes it, and onnxruntime: whoever counts pieces would miss it."""
    packed = field(1, "perm") + field(8, varint(1) + varint(0)) + field(20, 7)
    node = field(1, "x") + field(2, "z") + field(4, "Transpose") + field(5, packed)
    graph = field(1, node) + field(2, "step")
    with pytest.raises(BadGraph, match="ints is of wire type 2, not 0"):
        read(PARTS[0] + field(7, graph) + PARTS[2])


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("nodes", 18, "the graph's nodes are 19; at most 18"),
        ("constants", 4, "the graph's initializers are 5; at most 4"),
        ("ports", 5, "the graph's outputs are 6; at most 5"),
        ("rank", 1, "the dimensions of theta/dense.weight are 2; at most 1"),
        ("name", 3, "a name that is too long"),
    ],
)
def test_there_is_an_end_to_everything(
    limit: str, value: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LIMITS", reading.LIMITS._replace(**{limit: value}))
    with pytest.raises(BadGraph, match=said):
        read(model())


def test_a_graph_that_is_too_long_is_not_looked_at() -> None:
    with pytest.raises(BadGraph, match="at most 16777216 are taken"):
        read(bytes(reading.LARGEST_GRAPH + 1))


@pytest.mark.slow
def test_damaged_graphs_are_refused_or_are_graphs() -> None:
    taken = [survived(octets) for octets in islice(damaged_graphs(15), 2000)]
    assert 0.02 < sum(taken) / len(taken) < 0.5, "some of both"


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.onnx")), ids=lambda path: path.stem)
def test_what_once_broke_something_breaks_nothing(path: Path) -> None:
    survived(path.read_bytes())
    with pytest.raises(BadGraph):
        read(path.read_bytes())
