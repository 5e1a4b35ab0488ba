"""Shape rules of products and of moving windows, after ONNX's rules (opset 18).

tensor_info.py defines a rule; shapes.py has the other rules.
"""

import numpy as np

from edgeflock.shared.graphs.graph import Node
from edgeflock.shared.graphs.tensor_info import Inputs, Shape, TensorInfo, integer, integers, non_negative


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
