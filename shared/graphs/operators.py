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


_KINDS = {
    "f": "alpha beta epsilon high low momentum",
    "g": "body",
    "i": "allowzero axis batch_dims ceil_mode count_include_pad end exclusive group keepdims "
    "noop_with_empty_axes num_outputs num_scan_inputs reverse select_last_index start stash_type "
    "storage_order to transA transB",
    "ints": "dilations kernel_shape output_padding pads perm scan_input_directions scan_output_directions "
    "strides",
    "s": "approximate auto_pad mode reduction",
    "t": "value",
}
"""The field of an attribute's value -> the attributes, which have it in all operators."""

_FIELDS = {name: kind for kind, names in _KINDS.items() for name in names.split()}


def _named(*names: str) -> dict[str, str]:
    """The attributes of these names."""
    return {name: _FIELDS[name] for name in names}


_WINDOW = ("auto_pad", "kernel_shape", "pads", "strides")
"""The attributes of operators with a moving window."""

_NOTSET = frozenset({b"NOTSET"})

TABLE: dict[str, Operator] = {
    **dict.fromkeys(
        (
            "Abs Cos Erf Exp Floor HardSwish Identity Log Mish Neg Not Reciprocal Relu Round Sigmoid Sign "
            "Sin Softplus Sqrt Tanh"
        ).split(),
        Operator(shapes.like_first, 1),
    ),
    **dict.fromkeys("Add Div Max Min Mul PRelu Pow Sub".split(), Operator(shapes.broadcast, 2)),
    **dict.fromkeys(
        "And Equal Greater GreaterOrEqual Less LessOrEqual Or".split(), Operator(shapes.compare, 2)
    ),
    **dict.fromkeys(
        "ReduceL2 ReduceLogSumExp ReduceMean ReduceMin ReduceSum".split(),
        Operator(shapes.reduce, 2, attributes=_named("keepdims", "noop_with_empty_axes")),
    ),
    **dict.fromkeys(("LogSoftmax", "Softmax"), Operator(shapes.like_first, 1, attributes=_named("axis"))),
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu"), Operator(shapes.like_first, 1, attributes=_named("alpha"))),
    "ArgMax": Operator(shapes.arg_max, 1, attributes=_named("axis", "keepdims", "select_last_index")),
    "AveragePool": Operator(
        shapes.pool, 1, 1, _named(*_WINDOW, "ceil_mode", "count_include_pad"), _NOTSET, _window
    ),
    "BatchNormalization": Operator(shapes.like_first, 5, attributes=_named("epsilon", "momentum")),
    "Cast": Operator(shapes.cast, 1, attributes=_named("to")),
    "Clip": Operator(shapes.like_first, 3),
    "Concat": Operator(shapes.concat, None, attributes=_named("axis")),
    "ConstantOfShape": Operator(shapes.constant_of_shape, 1, attributes=_named("value")),
    "Conv": Operator(shapes.conv, 3, 1, _named(*_WINDOW, "dilations", "group"), _NOTSET, _taps),
    "ConvTranspose": Operator(
        shapes.conv_transpose, 3, 1, _named(*_WINDOW, "dilations", "output_padding", "group"), _NOTSET, _taps
    ),
    "CumSum": Operator(shapes.like_first, 2, attributes=_named("exclusive", "reverse")),
    "Expand": Operator(shapes.expand, 2),
    "Gather": Operator(shapes.gather, 2, attributes=_named("axis")),
    "GatherElements": Operator(shapes.gather_elements, 2, attributes=_named("axis")),
    "GatherND": Operator(shapes.gather_nd, 2, attributes=_named("batch_dims")),
    "Gelu": Operator(shapes.like_first, 1, 1, _named("approximate"), frozenset({b"none", b"tanh"})),
    "Gemm": Operator(shapes.gemm, 3, attributes=_named("alpha", "beta", "transA", "transB"), work=_products),
    "HardSigmoid": Operator(shapes.like_first, 1, attributes=_named("alpha", "beta")),
    "LayerNormalization": Operator(shapes.layer_norm, 3, 3, _named("axis", "epsilon", "stash_type")),
    "MatMul": Operator(shapes.matmul, 2, work=_products),
    "MaxPool": Operator(
        shapes.pool, 1, 1, _named(*_WINDOW, "dilations", "ceil_mode", "storage_order"), _NOTSET, _window
    ),
    "Pad": Operator(shapes.pad, 3, 1, _named("mode"), frozenset({b"constant"})),
    "RandomUniformLike": Operator(shapes.like_first, 1, attributes=_named("high", "low")),
    "Range": Operator(shapes.range_of, 3),
    "ReduceMax": Operator(shapes.reduce, 2, attributes=_named("keepdims")),
    "Reshape": Operator(shapes.reshape, 2, attributes=_named("allowzero")),
    "Scan": Operator(
        *(None, None, None),
        _named("body", "num_scan_inputs", "scan_input_directions", "scan_output_directions"),
    ),
    "ScatterElements": Operator(shapes.like_first, 3, 1, _named("axis", "reduction"), frozenset({b"none"})),
    "ScatterND": Operator(shapes.like_first, 3, 1, _named("reduction"), frozenset({b"none", b"add"})),
    "Shape": Operator(shapes.shape, 1, attributes=_named("start", "end")),
    "Size": Operator(shapes.size, 1),
    "Slice": Operator(shapes.slice_shape, 5),
    "Split": Operator(shapes.split, 2, None, _named("axis", "num_outputs")),
    "Squeeze": Operator(shapes.squeeze, 2),
    "Tile": Operator(shapes.tile, 2),
    "Transpose": Operator(shapes.transpose, 1, attributes=_named("perm")),
    "Unsqueeze": Operator(shapes.unsqueeze, 2),
    "Where": Operator(shapes.select, 3),
}
