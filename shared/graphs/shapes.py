"""Shape rules of operators, after ONNX's rules (opset 18): the shapes of results from those of inputs.

graph.py says what a rule is. First come operators that work on single entries, or that arrange, pick or
reduce entries; then products and moving windows.
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from edgeflock.shared.graphs.graph import (
    BOOL,
    FLOAT,
    INT64,
    TYPES,
    GraphConstant,
    Inputs,
    Node,
    Shape,
    TensorInfo,
    axes_of,
    integer,
    integers,
    non_negative,
)


def like_first(node: Node, inputs: Inputs) -> list[TensorInfo]:
    return [TensorInfo(inputs[0].type, inputs[0].shape)]


def broadcast(node: Node, inputs: Inputs) -> list[TensorInfo]:
    shapes = [tensor.shape for tensor in inputs if tensor is not None]
    return [TensorInfo(inputs[0].type, np.broadcast_shapes(*shapes))]


def compare(node: Node, inputs: Inputs) -> list[TensorInfo]:
    return [TensorInfo(BOOL, broadcast(node, inputs)[0].shape)]


def select(node: Node, inputs: Inputs) -> list[TensorInfo]:
    """The rule of Where."""
    return [TensorInfo(inputs[1].type, broadcast(node, inputs)[0].shape)]


def cast(node: Node, inputs: Inputs) -> list[TensorInfo]:
    kind = integer(node, "to")
    if kind not in TYPES:
        raise ValueError(f"entries of type {kind}")
    return [TensorInfo(kind, inputs[0].shape)]


def shape(node: Node, inputs: Inputs) -> list[TensorInfo]:
    """The rule of Shape, with a range of dimensions."""
    sizes = inputs[0].shape[slice(integer(node, "start", 0), node.attributes.get("end"))]
    return [TensorInfo(INT64, (len(sizes),), np.array(sizes, np.int64))]


def size(node: Node, inputs: Inputs) -> list[TensorInfo]:
    return [TensorInfo(INT64, (), np.array(prod(inputs[0].shape), np.int64))]


def constant_of_shape(node: Node, inputs: Inputs) -> list[TensorInfo]:
    value = node.attributes.get("value")
    kind = value.type if isinstance(value, GraphConstant) else FLOAT
    return [TensorInfo(kind, non_negative(inputs[0].numbers()))]


def range_of(node: Node, inputs: Inputs) -> list[TensorInfo]:
    first, end, step = (tensor.numbers()[0] for tensor in inputs[:3])
    return [TensorInfo(inputs[0].type, (max(0, -((first - end) // step)),))]


def reshape(node: Node, inputs: Inputs) -> list[TensorInfo]:
    wanted = inputs[1].numbers()
    if not integer(node, "allowzero", 0):
        wanted = [inputs[0].shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    count = prod(inputs[0].shape)
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = count // rest
    if prod(wanted) != count:
        raise ValueError(f"{count} entries become a shape of {wanted}")
    return [TensorInfo(inputs[0].type, non_negative(wanted))]


def expand(node: Node, inputs: Inputs) -> list[TensorInfo]:
    return [
        TensorInfo(inputs[0].type, np.broadcast_shapes(inputs[0].shape, non_negative(inputs[1].numbers())))
    ]


def tile(node: Node, inputs: Inputs) -> list[TensorInfo]:
    times = inputs[1].numbers()
    return [
        TensorInfo(inputs[0].type, non_negative([a * b for a, b in zip(inputs[0].shape, times, strict=True)]))
    ]


def transpose(node: Node, inputs: Inputs) -> list[TensorInfo]:
    old = inputs[0].shape
    order: Any = node.attributes.get("perm", tuple(reversed(range(len(old)))))
    if sorted(order) != list(range(len(old))):
        raise ValueError(f"{order} is no order of {len(old)} axes")
    return [TensorInfo(inputs[0].type, tuple(old[axis] for axis in order))]


def unsqueeze(node: Node, inputs: Inputs) -> list[TensorInfo]:
    axes = inputs[1].numbers()
    new = list(inputs[0].shape)
    for axis in sorted(axes_of(axes, len(new) + len(axes))):
        new.insert(axis, 1)
    return [TensorInfo(inputs[0].type, tuple(new))]


def squeeze(node: Node, inputs: Inputs) -> list[TensorInfo]:
    old = inputs[0].shape
    dropped = [axis for axis, size in enumerate(old) if size == 1]
    if len(inputs) > 1 and inputs[1] is not None:
        dropped = axes_of(inputs[1].numbers(), len(old))
    if any(old[axis] != 1 for axis in dropped):
        raise ValueError(f"axes {dropped} of {old} are not all 1")
    return [TensorInfo(inputs[0].type, tuple(size for axis, size in enumerate(old) if axis not in dropped))]


def concat(node: Node, inputs: Inputs) -> list[TensorInfo]:
    parts = [tensor for tensor in inputs if tensor is not None]
    (axis,) = axes_of([integer(node, "axis")], len(parts[0].shape))
    if len({(*tensor.shape[:axis], *tensor.shape[axis + 1 :]) for tensor in parts}) > 1:
        raise ValueError("parts of other shapes")
    new = list(parts[0].shape)
    new[axis] = sum(tensor.shape[axis] for tensor in parts)
    return [TensorInfo(parts[0].type, tuple(new))]


def split(node: Node, inputs: Inputs) -> list[TensorInfo]:
    old = inputs[0].shape
    (axis,) = axes_of([integer(node, "axis", 0)], len(old))
    parts = len(node.outputs)
    if integer(node, "num_outputs", parts) != parts:  # before so many sizes are listed
        raise ValueError(f"{parts} outputs, for another num_outputs")
    each = ceil(old[axis] / parts)
    sizes = [each] * (parts - 1) + [old[axis] - each * (parts - 1)]
    if inputs[1] is not None:
        sizes = inputs[1].numbers()
    if len(sizes) != len(node.outputs) or sum(sizes) != old[axis]:
        raise ValueError(f"{old[axis]} apart as {sizes}")
    return [TensorInfo(inputs[0].type, non_negative([*old[:axis], part, *old[axis + 1 :]])) for part in sizes]


def slice_shape(node: Node, inputs: Inputs) -> list[TensorInfo]:
    new = list(inputs[0].shape)
    for axis, part in slices(inputs, inputs[0].shape).items():
        new[axis] = len(range(*part.indices(new[axis])))
    return [TensorInfo(inputs[0].type, tuple(new))]


def slices(inputs: Inputs, old: Shape) -> dict[int, slice]:
    """For Slice: axis -> the Python slice that stays."""
    starts, ends = inputs[1].numbers(), inputs[2].numbers()
    axes = list(range(len(starts))) if inputs[3] is None else inputs[3].numbers()
    steps = [1] * len(starts) if inputs[4] is None else inputs[4].numbers()
    parts = {}
    for axis, start, end, step in zip(axes_of(axes, len(old)), starts, ends, steps, strict=True):
        if step < 0 and start < -old[axis]:  # ONNX then begins at the first entry, Python at none
            raise ValueError(f"down from {start}")
        parts[axis] = slice(start, end, step)
    return parts


def pad(node: Node, inputs: Inputs) -> list[TensorInfo]:
    old, sides = inputs[0].shape, inputs[1].numbers()
    axes = list(range(len(old))) if inputs[3] is None else axes_of(inputs[3].numbers(), len(old))
    new = list(old)
    for axis, before, after in zip(axes, sides[: len(axes)], sides[len(axes) :], strict=True):
        new[axis] += before + after
    return [TensorInfo(inputs[0].type, non_negative(new))]


def gather(node: Node, inputs: Inputs) -> list[TensorInfo]:
    old = inputs[0].shape
    (axis,) = axes_of([integer(node, "axis", 0)], len(old))
    return [TensorInfo(inputs[0].type, (*old[:axis], *inputs[1].shape, *old[axis + 1 :]))]


def gather_elements(node: Node, inputs: Inputs) -> list[TensorInfo]:
    return [TensorInfo(inputs[0].type, inputs[1].shape)]


def gather_nd(node: Node, inputs: Inputs) -> list[TensorInfo]:
    *places, depth = inputs[1].shape
    return [TensorInfo(inputs[0].type, (*places, *inputs[0].shape[depth + integer(node, "batch_dims", 0) :]))]


def reduce(node: Node, inputs: Inputs) -> list[TensorInfo]:
    old = inputs[0].shape
    if inputs[1] is None or not inputs[1].numbers():
        if integer(node, "noop_with_empty_axes", 0):
            return like_first(node, inputs)
        axes = list(range(len(old)))
    else:
        axes = axes_of(inputs[1].numbers(), len(old))
    return [TensorInfo(inputs[0].type, _drop_axes(old, axes, integer(node, "keepdims", 1)))]


def arg_max(node: Node, inputs: Inputs) -> list[TensorInfo]:
    """The rule of ArgMax."""
    old = inputs[0].shape
    axes = axes_of([integer(node, "axis", 0)], len(old))
    return [TensorInfo(INT64, _drop_axes(old, axes, integer(node, "keepdims", 1)))]


def layer_norm(node: Node, inputs: Inputs) -> list[TensorInfo]:
    x = inputs[0].shape
    (axis,) = axes_of([integer(node, "axis", -1)], len(x))
    statistics = TensorInfo(FLOAT, (*x[:axis], *[1] * (len(x) - axis)))
    return [TensorInfo(inputs[0].type, x), statistics, statistics][: len(node.outputs)]


def _drop_axes(old: Shape, axes: Sequence[int], keep: int) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(old) if keep or axis not in axes)


def matmul(node: Node, inputs: Inputs) -> list[TensorInfo]:
    a, b = inputs[0].shape, inputs[1].shape
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    if left[-1] != right[-2]:
        raise ValueError(f"{a} times {b}")
    new = np.broadcast_shapes(left[:-2], right[:-2])
    return [TensorInfo(inputs[0].type, (*new, *left[-2:-1] * (len(a) > 1), *right[-1:] * (len(b) > 1)))]


def gemm(node: Node, inputs: Inputs) -> list[TensorInfo]:
    (m, k), (rows, n) = (
        matrix.shape[::-1] if integer(node, name, 0) else matrix.shape
        for matrix, name in zip(inputs[:2], ("transA", "transB"), strict=True)
    )
    if k != rows:
        raise ValueError(f"{m} x {k} times {rows} x {n}")
    return [TensorInfo(inputs[0].type, (m, n))]


def conv(node: Node, inputs: Inputs) -> list[TensorInfo]:
    x, w = inputs[0].shape, inputs[1].shape
    if x[1] != w[1] * integer(node, "group", 1):
        raise ValueError(f"{x[1]} channels, for {w[1]} of a group")
    return [TensorInfo(inputs[0].type, (x[0], w[0], *_windows(node, x[2:], w[2:])))]


def conv_transpose(node: Node, inputs: Inputs) -> list[TensorInfo]:
    x, w = inputs[0].shape, inputs[1].shape
    rank = len(x) - 2
    strides, dilations, more, pads = (
        integers(node, name, (default,) * count)
        for name, default, count in (
            ("strides", 1, rank),
            ("dilations", 1, rank),
            ("output_padding", 0, rank),
            ("pads", 0, 2 * rank),
        )
    )
    new = [
        (size - 1) * step + (taps - 1) * spread + 1 + rest - before - after
        for size, taps, step, spread, rest, before, after in zip(
            x[2:], w[2:], strides, dilations, more, pads[:rank], pads[rank:], strict=True
        )
    ]
    if x[1] != w[0]:
        raise ValueError(f"{x[1]} channels, for {w[0]}")
    return [TensorInfo(inputs[0].type, non_negative([x[0], w[1] * integer(node, "group", 1), *new]))]


def pool(node: Node, inputs: Inputs) -> list[TensorInfo]:
    """The rule of MaxPool, without the indices of the maxima, and of AveragePool."""
    x = inputs[0].shape
    new = (*x[:2], *_windows(node, x[2:], integers(node, "kernel_shape", ())))
    return [TensorInfo(inputs[0].type, new)]


def _windows(node: Node, sizes: Shape, kernel: Shape) -> list[int]:
    """The number of positions of a kernel along each axis."""
    rank = len(sizes)
    strides = integers(node, "strides", (1,) * rank)
    dilations = integers(node, "dilations", (1,) * rank)
    pads = integers(node, "pads", (0,) * (2 * rank))
    ceil = integer(node, "ceil_mode", 0)
    new = []
    for size, taps, step, spread, before, after in zip(
        sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True
    ):
        span = size + before + after - (taps - 1) * spread - 1
        new.append((-(-span // step) if ceil else span // step) + 1)
        if step < 1 or taps < 1 or spread < 1 or min(before, after) < 0 or span < 0:
            raise ValueError(f"a window of {taps} on {size}")
    return new
