"""Loops in a graph: a Scan's body has what a graph may have, or less, and is weighed as often as it runs."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.footprint import Footprint, footprint
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write

STEPS, BATCH, SIZE = 5, 2, 3


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model() -> onnx.ModelProto:
    """h becomes h w + x_t at each step; gives the last one and all of them."""
    body = helper.make_graph(
        [
            helper.make_node("Gemm", ["before", "w", "x_t"], ["after"]),
            helper.make_node("Identity", ["after"], ["shown"]),
        ],
        "body",
        [floats("before", "batch", SIZE), floats("x_t", "batch", SIZE)],
        [floats("after", "batch", SIZE), floats("shown", "batch", SIZE)],
    )
    scan = helper.make_node(
        "Scan",
        ["h", "x"],
        ["last", "each"],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[0],
        scan_output_directions=[1],
    )
    graph = helper.make_graph(
        [helper.make_node("Add", ["h", "h"], ["before_it"]), scan],
        "step",
        [floats("h", "batch", SIZE), floats("x", STEPS, "batch", SIZE), floats("w", SIZE, SIZE)],
        [floats("last", "batch", SIZE), floats("each", STEPS, "batch", SIZE)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def weighed(proto: onnx.ModelProto, steps: int = STEPS) -> Footprint:
    shapes = {"h": (BATCH, SIZE), "x": (steps, BATCH, SIZE), "w": (SIZE, SIZE)}
    return footprint(read(proto.SerializeToString()), shapes)


def test_a_scan_is_read_and_written_to_the_same_graph() -> None:
    graph = read(model().SerializeToString())
    octets = write(graph)
    assert read(octets) == graph
    assert write(read(octets)) == octets
    onnx.checker.check_model(onnx.load_from_string(octets), full_check=True)


def test_it_gives_states_and_what_each_step_gives() -> None:
    taken = weighed(model())
    assert {name: seen.shape for name, seen in taken.outputs.items()} == {
        "last": (BATCH, SIZE),
        "each": (STEPS, BATCH, SIZE),
    }


def test_it_takes_as_long_as_its_arguments_are() -> None:
    """Each step starts two operators, and multiplies."""
    one, many = weighed(model(), 1).work, weighed(model(), 1001).work
    assert (many - one) % 1000 == 0
    assert (many - one) // 1000 > 2 * BATCH * SIZE * SIZE
    assert weighed(model(), 1 << 20).work > 1 << 32


def test_what_a_step_takes_counts_beside_what_it_leaves() -> None:
    """Its results of all steps, and the two tensors of one."""
    entry = 4 * BATCH * SIZE
    assert weighed(model()).octets >= (1 + STEPS + 2) * entry


def body_of(proto: onnx.ModelProto) -> onnx.GraphProto:
    body: onnx.GraphProto = proto.graph.node[1].attribute[0].g
    return body


def outside(name: str) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.zeros(1, np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def nested(proto: onnx.ModelProto) -> None:
    within = onnx.NodeProto()
    within.CopyFrom(proto.graph.node[1])
    body_of(proto).node.append(within)


Change = Callable[[onnx.ModelProto], object]

CHANGES: dict[str, tuple[Change, str]] = {
    "a file in its body": (
        lambda m: body_of(m).initializer.append(outside("stolen")),
        "Scan's attribute body has a field 5",
    ),
    "a file in an attribute in its body": (
        lambda m: body_of(m).node.append(
            helper.make_node("ConstantOfShape", ["before"], ["filled"], value=outside(""))
        ),
        "has a field 1[34]",
    ),
    "a sparse constant in its body": (
        lambda m: body_of(m).sparse_initializer.add(),
        "Scan's attribute body has a field 15",
    ),
    "another operator in its body": (
        lambda m: setattr(body_of(m).node[1], "op_type", "If"),
        "an operator If, which no training step needs",
    ),
    "another domain in its body": (
        lambda m: setattr(body_of(m).node[1], "domain", "com.microsoft"),
        "Identity is of another domain",
    ),
    "a body in its body": (nested, "a body within a body"),
    "no body": (lambda m: m.graph.node[1].attribute.pop(0), "it scans"),
    "two bodies": (
        lambda m: m.graph.node[1].attribute.append(m.graph.node[1].attribute[0]),
        "two of the attribute body",
    ),
    "a body of another operator": (
        lambda m: m.graph.node[0].attribute.append(m.graph.node[1].attribute[0]),
        "Add has an attribute body",
    ),
    "more bodies": (
        lambda m: m.graph.node[1].attribute[0].graphs.append(body_of(m)),
        "has a field 11",
    ),
    "what nothing around it makes": (
        lambda m: body_of(m).node[0].input.__setitem__(1, "nothing"),
        "takes nothing, which nothing before it makes",
    ),
    "what is made after it": (
        lambda m: body_of(m).node[0].input.__setitem__(1, "each"),
        "takes each, which nothing before it makes",
    ),
    "a name of around it": (
        lambda m: body_of(m).node[1].output.__setitem__(0, "before_it"),
        "two of the name before_it",
    ),
    "a name of its body, around it": (
        lambda m: m.graph.node.append(helper.make_node("Neg", ["after"], ["out"])),
        "takes after, which nothing before it makes",
    ),
    "a name of its body, made again": (
        lambda m: m.graph.node.append(helper.make_node("Neg", ["h"], ["after"])),
        "two of the name after",
    ),
    "an output that its body does not make": (
        lambda m: setattr(body_of(m).output[1], "name", "before_it"),
        "gives before_it, which nothing makes",
    ),
    "more to go along than there is": (
        lambda m: setattr(m.graph.node[1].attribute[1], "i", 3),
        "it scans 3 of 2",
    ),
    "nothing to go along": (lambda m: setattr(m.graph.node[1].attribute[1], "i", 0), "it scans 0 of 2"),
    "less than nothing": (lambda m: setattr(m.graph.node[1].attribute[1], "i", -1), "it scans -1"),
    "a direction that is none": (
        lambda m: m.graph.node[1].attribute[2].ints.__setitem__(0, 2),
        "scan_input_directions must be",
    ),
    "directions of other arguments": (
        lambda m: m.graph.node[1].attribute[3].ints.append(0),
        "scan_output_directions is",
    ),
    "axes": (
        lambda m: m.graph.node[1].attribute.append(helper.make_attribute("scan_input_axes", [0])),
        "Scan has an attribute scan_input_axes",
    ),
    "a body of more arguments": (
        lambda m: body_of(m).input.append(floats("more", 1)),
        "its body takes 3",
    ),
    "a body of another shape": (
        lambda m: body_of(m).input[0].type.tensor_type.shape.dim[1].__setattr__("dim_value", 7),
        r"before is \[2, 3\], its body has \['batch', 7\]",
    ),
    "a state that becomes another": (
        lambda m: (
            body_of(m).output[0].CopyFrom(floats("x_sum", 1)),
            body_of(m).node.append(helper.make_node("ReduceSum", ["x_t"], ["x_sum"])),
        ),
        "its state x_sum becomes|x_sum is",
    ),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_what_no_exporter_writes_is_refused(change: Change, said: str) -> None:
    proto = model()
    change(proto)
    with pytest.raises(BadGraph, match=said):
        weighed(proto)
