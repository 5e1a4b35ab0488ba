"""The gradient of a convolution, in ONNX operators.

dX is a transposed convolution of dY, which ONNX has. ONNX lacks dW[o, i, a, b], the sum over samples n and
places p of dY[n, o, p] X[n, i, s p + d (a, b)]. It has three forms here, each a matrix product:
- For a kernel of one pixel: the product of dY and X as they are.
- For few input channels, and for three dimensions: im2col. X is copied once for each tap, shifted by it.
- Otherwise each tap's shift is split. X is shifted by rows (contiguous copies), dY by columns, and one
  product of the two has all taps. That copies a |X| + b |dY| instead of a b |X|. With a stride over columns,
  X is split into the columns that a tap meets together, and each part has its own product.

Measured in onnxruntime 1.31 on a CPU, where weights are inputs: docs/benchmarks.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from onnxscript import opset18 as op

from edgeflock.server.training_graph.operators.onnx_values import Value, constant, first_output, numbers, pad

_FEW_CHANNELS = 4
_NARROW = 16
"""The most columns for which a shift and a mask are cheaper than a copy row by row."""


def convolution_backward(
    g: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Value, Value, Value]:
    """(dX, dW, d bias). g and x are [N, C, length], [N, C, height, width] or [N, C, depth, height, width]."""
    rank = len(x.shape) - 2
    stride, padding, dilation = (_per_dimension(values, rank) for values in (stride, padding, dilation))
    attributes: dict[str, Any] = {
        "strides": stride,
        "pads": [*padding, *padding],
        "dilations": dilation,
        "group": groups,
    }
    dx = g
    if wanted[0] and transposed:
        dx = op.Conv(g, weight, **attributes)
    elif (
        wanted[0]
        and max(weight.shape[2:], default=1) == 1 == groups
        and {*stride} == {1}
        and not any(padding)
    ):
        dx = op.Conv(g, op.Transpose(weight, perm=[1, 0, *range(2, 2 + rank)]))  # a plain product
    elif wanted[0]:
        # The columns and rows of X that the last steps do not reach.
        rest = [
            long + 2 * pad - (outputs - 1) * step - spread * (taps - 1) - 1
            for long, outputs, taps, step, pad, spread in zip(
                x.shape[2:], g.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
            )
        ]
        dx = op.ConvTranspose(g, weight, output_padding=rest, **attributes)
    dw = g
    if wanted[1]:
        source, result = (g, x) if transposed else (x, g)
        dw = _weight_gradient(source, result, weight.shape, stride, padding, dilation, groups)
    db = op.ReduceSum(g, numbers(0, *range(2, 2 + rank)), keepdims=0) if wanted[2] else g
    return dx, dw, db


def _weight_gradient(
    x: Value,
    g: Value,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """dW, of the given shape, of a convolution from x to a result of g's shape."""
    channels, outputs = shape[1] * groups, shape[0]
    around = padding if len(padding) > 1 else (0, *padding)
    sizes = x.shape[2:], g.shape[2:], shape[2:], stride, dilation, around
    if len(shape) > 4:
        window = _Window(*(tuple(size) for size in sizes))
        return op.Reshape(_by_columns(x, g, channels, outputs, groups, window), numbers(*shape))
    window = _Window(*(_plane(size) for size in sizes))
    x = op.Reshape(x, numbers(0, channels, *window.source))
    g = op.Reshape(g, numbers(0, outputs, *window.result))
    if groups == 1 and window.kernel == (1, 1) and window.padding == (0, 0):
        dw = _by_pixels(x, g, channels, outputs, window)
    elif groups == 1 and channels <= _FEW_CHANNELS:
        dw = _by_columns(x, g, channels, outputs, groups, window)
    else:
        dw = _by_shared_shifts(x, g, channels, outputs, groups, window)
    return op.Reshape(dw, numbers(*shape))


@dataclass(frozen=True, slots=True)
class _Window:
    """The geometry of a kernel, as (rows, columns) or (planes, rows, columns)."""

    source: tuple[int, ...]
    result: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]


def _by_pixels(x: Value, g: Value, channels: int, outputs: int, window: _Window) -> Value:
    """[made, channels]."""
    if window.stride != (1, 1):
        # A pool of one pixel is the cheapest way to skip pixels.
        x = first_output(op.MaxPool(x, kernel_shape=[1, 1], strides=window.stride))
    return op.Gemm(_rows(g, outputs), _rows(x, channels), transB=1)


def _by_columns(x: Value, g: Value, channels: int, outputs: int, groups: int, window: _Window) -> Value:
    """[made, channels / groups * taps] by im2col."""
    rank = len(window.kernel)
    x = op.Unsqueeze(op.Transpose(x, perm=[1, 0, *range(2, 2 + rank)]), numbers(1))
    if any(window.padding):
        x = op.Pad(x, numbers(*(2 * [0, 0, 0, *window.padding])))
    extent = [(size - 1) * step + 1 for size, step in zip(window.result, window.stride, strict=True)]
    axes, columns = range(3, 3 + rank), []
    for tap in product(*(range(taps) for taps in window.kernel)):
        start = [place * spread for place, spread in zip(tap, window.dilation, strict=True)]
        ends = [first + long for first, long in zip(start, extent, strict=True)]
        columns.append(op.Slice(x, numbers(*start), numbers(*ends), numbers(*axes), numbers(*window.stride)))
    if groups == 1:
        together = op.Reshape(_join(columns), numbers(channels * len(columns), -1))
        return op.Gemm(_rows(g, outputs, rank), together, transB=1)
    together = op.Reshape(_join(columns), numbers(groups, channels // groups * len(columns), -1))
    gs = op.Reshape(_rows(g, outputs, rank), numbers(groups, outputs // groups, -1))
    return op.MatMul(gs, op.Transpose(together, perm=[0, 2, 1]))


def _by_shared_shifts(x: Value, g: Value, channels: int, outputs: int, groups: int, window: _Window) -> Value:
    """[made, channels / groups, taps down, taps right]."""
    (height, width), (taps_down, taps_right) = window.source, window.kernel
    step = window.stride[1]
    narrow = -(-width // step)  # columns of X that a tap meets
    x = op.Transpose(x, perm=[1, 0, 2, 3])
    g = op.Transpose(g, perm=[1, 0, 2, 3])
    # Column q of part r is column q * step + r of X; tap b looks at part r, shifted by q.
    parts: dict[int, list[tuple[int, int]]] = {}
    for b in range(taps_right):
        shift, part = divmod(b * window.dilation[1] - window.padding[1], step)
        parts.setdefault(part, []).append((b, shift))
    if step > 1:
        x = op.Pad(x, numbers(0, 0, 0, 0, 0, 0, 0, narrow * step - width)) if width % step else x
        x = op.Transpose(op.Reshape(x, numbers(-1, step)), perm=[1, 0])
    products, order = [], []
    for part, taps in sorted(parts.items()):
        columns = op.Slice(x, numbers(part), numbers(part + 1), numbers(0)) if step > 1 else x
        xs = _shifted_rows(
            op.Reshape(columns, numbers(channels, -1, height * narrow)), channels, narrow, window
        )
        gs = _shifted_columns(g, outputs, narrow, [shift for _, shift in taps], window)
        order += [b for b, _ in taps]
        if groups == 1:
            xs = op.Reshape(xs, numbers(channels * taps_down, -1))
            product = op.Gemm(op.Reshape(gs, numbers(outputs * len(taps), -1)), xs, transB=1)
        else:
            xs = op.Reshape(xs, numbers(groups, channels // groups * taps_down, -1))
            gs = op.Reshape(gs, numbers(groups, outputs // groups * len(taps), -1))
            product = op.MatMul(gs, op.Transpose(xs, perm=[0, 2, 1]))
        products.append(op.Reshape(product, numbers(outputs, len(taps), channels // groups * taps_down)))
    every = _join(products)
    if order != sorted(order):
        every = op.Gather(every, numbers(*(order.index(b) for b in range(taps_right))), axis=1)
    return op.Transpose(every, perm=[0, 2, 1])


def _shifted_rows(x: Value, channels: int, narrow: int, window: _Window) -> Value:
    """X [channels, N, rows * narrow] -> [channels, taps down, N * result rows * narrow]."""
    (height, _), (rows, _), down = window.source, window.result, window.stride[0]
    extent = (rows - 1) * down + 1  # rows of X between the first and the last that a tap meets
    shifted = []
    for top in (window.padding[0] - a * window.dilation[0] for a in range(window.kernel[0])):
        taken = pad(x, 2, 3, top * narrow, (extent - height - top) * narrow)
        if down > 1:
            taken = op.Reshape(taken, numbers(channels, -1, extent, narrow))
            taken = op.Slice(taken, numbers(0), numbers(extent), numbers(2), numbers(down))
        shifted.append(op.Reshape(taken, numbers(channels, 1, -1)))
    return _join(shifted)


def _shifted_columns(g: Value, outputs: int, narrow: int, shifts: Sequence[int], window: _Window) -> Value:
    """Shift dY [made, N, rows, columns] -> [made, shifts, N * rows * narrow].

    Column q holds dY's column q - shift, or zeros where there is none.
    """
    rows, columns = window.result
    if columns == narrow <= _NARROW:
        moved = [_shifted_flat(g, outputs, shift, rows, columns) for shift in shifts]
    else:
        moved = [pad(g, 3, 4, shift, narrow - columns - shift) for shift in shifts]
    return _join([op.Reshape(part, numbers(outputs, 1, -1)) for part in moved])


def _shifted_flat(g: Value, outputs: int, shift: int, rows: int, columns: int) -> Value:
    """The shift on flattened pixels. A mask then clears pixels that crossed an edge."""
    if shift == 0:
        return g
    mask = np.zeros((1, rows, columns), np.float32)
    mask[..., max(shift, 0) : max(0, columns + min(shift, 0))] = 1
    flat = pad(op.Reshape(g, numbers(outputs, -1)), 1, 2, shift, -shift)
    return op.Mul(op.Reshape(flat, numbers(outputs, -1, rows, columns)), constant(mask))


def _rows(value: Value, channels: int, rank: int = 2) -> Value:
    """[N, channels, sizes...] -> [channels, the product of the others]."""
    return op.Reshape(op.Transpose(value, perm=[1, 0, *range(2, 2 + rank)]), numbers(channels, -1))


def _join(parts: Sequence[Value]) -> Value:
    """Concatenate on axis 1."""
    return op.Concat(*parts, axis=1) if len(parts) > 1 else parts[0]


def _per_dimension(values: Sequence[int], rank: int) -> list[int]:
    """One value per dimension. A single value holds for all."""
    return list(values) if len(values) == rank else [values[0]] * rank


def _plane(values: Sequence[int]) -> tuple[int, int]:
    """(rows, columns). One dimension becomes one row."""
    first, *rest = values
    return (first, rest[0]) if rest else (1, first)
