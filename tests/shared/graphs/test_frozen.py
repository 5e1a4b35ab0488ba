"""Graphs whose frozen matrices have eight bits."""

import pytest

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.frozen import freeze
from edgeflock.shared.graphs.graph import FLOAT, INT8, Graph, GraphConstant, Node, Port
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write

W, SCALES = "theta/w", "theta/w:scales"
GRAPH = Graph(
    nodes=(
        Node("Transpose", (W,), ("t",), {"perm": (1, 0)}),
        Node("MatMul", ("x", "t"), ("h",), {}),
        Node("Neg", ("h",), ("g",), {}),
        Node("MatMul", ("g", W), ("b",), {}),
        Node("MatMul", ("b", "t"), ("y",), {}),
    ),
    constants={},
    inputs=(Port("x", FLOAT, ("batch", 100)), Port(W, FLOAT, (100, 100))),
    outputs=(Port("y", FLOAT, ("batch", 100)),),
)


def file_of(kind: int) -> dict[str, GraphConstant]:
    return {
        W: GraphConstant(kind, (100, 100), b"", ("the.base", 408, 10_000)),
        SCALES: GraphConstant(FLOAT, (100,), b"", ("the.base", 8, 400)),
    }


def test_each_use_of_an_int8_matrix_has_a_copy_of_its_own() -> None:
    graph = freeze(GRAPH, file_of(INT8))
    assert graph.inputs == GRAPH.inputs[:1]
    assert graph.constants == file_of(INT8)
    one, made = "DequantizeLinear", {node.outputs[0]: node for node in graph.nodes}
    assert [node.operator for node in graph.nodes[:5]].count(one) == 3
    for name, way in (("h", ["Transpose", one]), ("b", [one]), ("y", ["Transpose", one])):
        node = made[name]
        for operator in way:
            node = made[node.inputs[-1 if node.operator == "MatMul" else 0]]
            assert node.operator == operator
        assert node.inputs == (W, SCALES)


def test_float_matrices_are_used_as_they_are() -> None:
    graph = freeze(GRAPH, file_of(FLOAT))
    assert graph.nodes == GRAPH.nodes
    assert freeze(GRAPH, {}) == GRAPH


def test_a_transpose_that_is_an_output_stays_one() -> None:
    nodes = (Node("Transpose", (W,), ("y",), {"perm": (1, 0)}),)
    graph = freeze(Graph(nodes, {}, GRAPH.inputs, (Port("y", FLOAT, (100, 100)),)), file_of(INT8))
    assert [node.operator for node in graph.nodes] == ["DequantizeLinear", "Transpose"]
    assert graph.nodes[-1].outputs == ("y",)


def test_a_body_takes_the_copy_too() -> None:
    body = Graph(
        (Node("MatMul", ("step", W), ("made",), {}),), {}, (Port("step", FLOAT, (3, 100)),),
        (Port("made", FLOAT, (3, 100)),),
    )  # fmt: skip
    scan = Node("Scan", ("x",), ("y",), {"body": body, "num_scan_inputs": 1})
    graph = freeze(Graph((scan,), {}, GRAPH.inputs, GRAPH.outputs), file_of(INT8))
    (copy,) = graph.nodes[0].outputs
    assert graph.nodes[1].body is not None
    assert graph.nodes[1].body.nodes[0].inputs == ("step", copy)


def test_a_device_writes_where_a_constant_is_and_takes_no_such_graph() -> None:
    written = write(freeze(GRAPH, file_of(FLOAT)))
    for text, times in ((b"the.base", 2), (b"10000", 1), (b"408", 1)):
        assert written.count(text) == times
    with pytest.raises(BadGraph):
        read(written)
