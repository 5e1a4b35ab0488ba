"""A training step by hand: a dense layer with a squared loss, and means of what it sees.

    p = x W^T + b          loss = mean (p - y)^2          m <- 0.9 m + 0.1 (mean of x over the batch)

So d loss / d W = 2 / (n o) (p - y)^T x and d loss / d b = 2 / (n o) sum over the batch of (p - y), for n
samples and o outputs.
"""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgeflock.shared.model.layout import Layout

INPUTS, OUTPUTS = 3, 2

LAYOUT = Layout.from_shapes(
    [
        ("dense.weight", (OUTPUTS, INPUTS)),
        ("nothing", (0,)),
        ("dense.bias", (OUTPUTS,)),
        ("unused", ()),
        ("norm.running_mean", (INPUTS,), True),
    ]
)
"""P = 9, B = 3. The graph has no use for two of the parameters."""

Info = onnx.ValueInfoProto


def floats(name: str, shape: Sequence[int | str]) -> Info:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


INPUT_INFOS = {
    info.name: info
    for info in (
        floats("theta/dense.weight", (OUTPUTS, INPUTS)),
        floats("theta/dense.bias", (OUTPUTS,)),
        floats("theta/norm.running_mean", (INPUTS,)),
        floats("x", ("batch", INPUTS)),
        floats("y", ("batch", OUTPUTS)),
    )
}

OUTPUT_INFOS = {
    info.name: info
    for info in (
        floats("loss", ()),
        floats("gradient/dense.weight", (OUTPUTS, INPUTS)),
        floats("gradient/nothing", (0,)),
        floats("gradient/dense.bias", (OUTPUTS,)),
        floats("gradient/unused", ()),
        floats("buffer/norm.running_mean", (INPUTS,)),
    )
}


def model(
    inputs: dict[str, Info] = INPUT_INFOS,
    outputs: dict[str, Info] = OUTPUT_INFOS,
    constants: Sequence[onnx.TensorProto] = (),
    more: Sequence[onnx.NodeProto] = (),
) -> bytes:
    """The graph, with other inputs, outputs, constants or nodes on request."""
    make = helper.make_node
    nodes = [
        make("Transpose", ["theta/dense.weight"], ["wt"]),
        make("MatMul", ["x", "wt"], ["product"]),
        make("Add", ["product", "theta/dense.bias"], ["p"]),
        make("Sub", ["p", "y"], ["error"]),
        make("Mul", ["error", "error"], ["squared"]),
        make("ReduceMean", ["squared"], ["loss"], keepdims=0),
        make("Size", ["error"], ["size"]),
        make("Cast", ["size"], ["count"], to=TensorProto.FLOAT),
        make("Div", ["error", "count"], ["share"]),
        make("Add", ["share", "share"], ["slope"]),
        make("Transpose", ["slope"], ["slope_t"]),
        make("MatMul", ["slope_t", "x"], ["gradient/dense.weight"]),
        make("ReduceSum", ["slope", "first"], ["gradient/dense.bias"], keepdims=0),
        make("Identity", ["no_values"], ["gradient/nothing"]),
        make("Identity", ["zero"], ["gradient/unused"]),
        make("ReduceMean", ["x", "first"], ["mean"], keepdims=0),
        make("Mul", ["theta/norm.running_mean", "kept"], ["old"]),
        make("Mul", ["mean", "taken"], ["new"]),
        make("Add", ["old", "new"], ["buffer/norm.running_mean"]),
    ]
    own = [
        numpy_helper.from_array(np.array([0]), "first"),
        numpy_helper.from_array(np.zeros(0, np.float32), "no_values"),
        numpy_helper.from_array(np.array(0, np.float32), "zero"),
        numpy_helper.from_array(np.array(0.9, np.float32), "kept"),
        numpy_helper.from_array(np.array(0.1, np.float32), "taken"),
    ]
    graph = helper.make_graph(
        [*nodes, *more], "step", list(inputs.values()), list(outputs.values()), [*own, *constants]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    octets: bytes = made.SerializeToString()
    return octets


Floats = NDArray[np.float64]


def expected(theta: Floats, x: Floats, y: Floats) -> tuple[float, Floats, Floats]:
    """(loss, gradient [9], statistics [3]) by the formulas above, in float64."""
    weight, bias, mean = theta[:6].reshape(OUTPUTS, INPUTS), theta[6:8], theta[9:]
    error = x @ weight.T + bias - y
    slope = 2 / error.size * error
    gradient = np.concatenate([(slope.T @ x).ravel(), slope.sum(0), [0.0]])
    return float((error**2).mean()), gradient, 0.9 * mean + 0.1 * x.mean(0)
