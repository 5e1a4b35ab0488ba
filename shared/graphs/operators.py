"""The operators that a graph may have: only those that the exporter writes (server/training_graph).

Each operator computes, in time and memory that its arguments' shapes determine. None reads a file, keeps
state, or has text values. One operator runs another graph: a Scan runs its body, as often as its arguments
are long.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from edgeflock.shared.graphs import shapes
from edgeflock.shared.graphs.graph import Node, Rule, Shape, TensorInfo

Work = Callable[[Node, list[Any], list[TensorInfo]], int]
"""(node, inputs, results) -> multiplications, or visited entries."""


def _entries(node: Node, inputs: list[Any], results: list[TensorInfo]) -> int:
    """The number of entries of the largest tensor."""
    return int(max(prod(tensor.shape) for tensor in (*inputs, *results) if tensor is not None))


def _products(node: Node, inputs: list[Any], results: list[TensorInfo]) -> int:
    """For matrix products: the length of a row of the first matrix (transposed: a column) per entry."""
    first: Shape = inputs[0].shape
    return prod(results[0].shape) * (first[0] if node.attributes.get("transA") else first[-1])


def _taps(node: Node, inputs: list[Any], results: list[TensorInfo]) -> int:
    """For convolutions: a kernel, [out, in, ...] or [in, out, ...], for each place of the wider side."""
    x: Shape = inputs[0].shape
    kernel: Shape = inputs[1].shape
    return x[0] * max(prod(x[2:]), prod(results[0].shape[2:])) * prod(kernel)


def _window(node: Node, inputs: list[Any], results: list[TensorInfo]) -> int:
    """For pools."""
    kernel: Any = node.attributes["kernel_shape"]
    return prod(results[0].shape) * int(prod(kernel))


@dataclass(frozen=True, slots=True)
class Operator:
    """The valid forms of an operator."""

    rule: Rule | None
    """None: a Scan, whose body footprint.py visits."""
    inputs: int | None
    """The most inputs; None: any number."""
    outputs: int | None = 1
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Name -> the field of its value (reading.KINDS)."""
    texts: frozenset[bytes] = frozenset()
    """The valid values of text attributes."""
    work: Work = _entries


def _windows(*more: str) -> dict[str, str]:
    """The attributes of operators with a moving window."""
    return {"auto_pad": "s", **dict.fromkeys(("kernel_shape", "pads", "strides", *more), "ints")}


_NOTSET = frozenset({b"NOTSET"})

TABLE: dict[str, Operator] = {
    **dict.fromkeys(
        (
            "Abs Cos Erf Exp Floor HardSwish Identity Log Mish Neg Not Reciprocal Relu Round Sigmoid Sign "
            "Sin Softplus Sqrt Tanh"
        ).split(),
        Operator(shapes.like_first, 1),
    ),
    **dict.fromkeys(
        ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub"), Operator(shapes.broadcast, 2)
    ),
    **dict.fromkeys(
        ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or"),
        Operator(shapes.compare, 2),
    ),
    **dict.fromkeys(
        ("ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceMin", "ReduceSum"),
        Operator(shapes.reduce, 2, attributes={"keepdims": "i", "noop_with_empty_axes": "i"}),
    ),
    **dict.fromkeys(("LogSoftmax", "Softmax"), Operator(shapes.like_first, 1, attributes={"axis": "i"})),
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu"), Operator(shapes.like_first, 1, attributes={"alpha": "f"})),
    "ArgMax": Operator(
        shapes.arg_max, 1, attributes={"axis": "i", "keepdims": "i", "select_last_index": "i"}
    ),
    "AveragePool": Operator(
        shapes.pool,
        1,
        attributes={**_windows(), "ceil_mode": "i", "count_include_pad": "i"},
        texts=_NOTSET,
        work=_window,
    ),
    "BatchNormalization": Operator(shapes.like_first, 5, attributes={"epsilon": "f", "momentum": "f"}),
    "Cast": Operator(shapes.cast, 1, attributes={"to": "i"}),
    "Clip": Operator(shapes.like_first, 3),
    "Concat": Operator(shapes.concat, None, attributes={"axis": "i"}),
    "ConstantOfShape": Operator(shapes.constant_of_shape, 1, attributes={"value": "t"}),
    "Conv": Operator(
        shapes.conv, 3, attributes={**_windows("dilations"), "group": "i"}, texts=_NOTSET, work=_taps
    ),
    "ConvTranspose": Operator(
        shapes.conv_transpose,
        3,
        attributes={**_windows("dilations", "output_padding"), "group": "i"},
        texts=_NOTSET,
        work=_taps,
    ),
    "CumSum": Operator(shapes.like_first, 2, attributes={"exclusive": "i", "reverse": "i"}),
    "Expand": Operator(shapes.expand, 2),
    "Gather": Operator(shapes.gather, 2, attributes={"axis": "i"}),
    "GatherElements": Operator(shapes.gather_elements, 2, attributes={"axis": "i"}),
    "GatherND": Operator(shapes.gather_nd, 2, attributes={"batch_dims": "i"}),
    "Gelu": Operator(
        shapes.like_first, 1, attributes={"approximate": "s"}, texts=frozenset({b"none", b"tanh"})
    ),
    "Gemm": Operator(
        shapes.gemm, 3, attributes={"alpha": "f", "beta": "f", "transA": "i", "transB": "i"}, work=_products
    ),
    "HardSigmoid": Operator(shapes.like_first, 1, attributes={"alpha": "f", "beta": "f"}),
    "LayerNormalization": Operator(
        shapes.layer_norm, 3, 3, attributes={"axis": "i", "epsilon": "f", "stash_type": "i"}
    ),
    "MatMul": Operator(shapes.matmul, 2, work=_products),
    "MaxPool": Operator(
        shapes.pool,
        1,
        attributes={**_windows("dilations"), "ceil_mode": "i", "storage_order": "i"},
        texts=_NOTSET,
        work=_window,
    ),
    "Pad": Operator(shapes.pad, 3, attributes={"mode": "s"}, texts=frozenset({b"constant"})),
    "RandomUniformLike": Operator(shapes.like_first, 1, attributes={"high": "f", "low": "f"}),
    "Range": Operator(shapes.range_of, 3),
    "ReduceMax": Operator(shapes.reduce, 2, attributes={"keepdims": "i"}),
    "Reshape": Operator(shapes.reshape, 2, attributes={"allowzero": "i"}),
    "Scan": Operator(
        None,
        None,
        None,
        attributes={
            "body": "g",
            "num_scan_inputs": "i",
            "scan_input_directions": "ints",
            "scan_output_directions": "ints",
        },
    ),
    "ScatterElements": Operator(
        shapes.like_first, 3, attributes={"axis": "i", "reduction": "s"}, texts=frozenset({b"none"})
    ),
    "ScatterND": Operator(
        shapes.like_first, 3, attributes={"reduction": "s"}, texts=frozenset({b"none", b"add"})
    ),
    "Shape": Operator(shapes.shape, 1, attributes={"start": "i", "end": "i"}),
    "Size": Operator(shapes.size, 1),
    "Slice": Operator(shapes.slice_shape, 5),
    "Split": Operator(shapes.split, 2, None, attributes={"axis": "i", "num_outputs": "i"}),
    "Squeeze": Operator(shapes.squeeze, 2),
    "Tile": Operator(shapes.tile, 2),
    "Transpose": Operator(shapes.transpose, 1, attributes={"perm": "ints"}),
    "Unsqueeze": Operator(shapes.unsqueeze, 2),
    "Where": Operator(shapes.select, 3),
}
