"""Pools and their gradients, in ONNX operators."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnxscript import opset18 as op

from edgeflock.server.training_graph.onnx_values import Value, constant, numbers, single


def max_pool2d(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil: bool = False,
) -> tuple[Value, Value]:
    """(y, a placeholder). Where the maxima were is expensive to ask for, and the gradient does without."""
    stride = stride or kernel
    if ceil:
        # ONNX has windows that begin beyond the image, torch has not: the padding says how many.
        spans = [spread * (size - 1) + 1 for spread, size in zip(dilation, kernel, strict=True)]
        last = [
            min(-((span - size - 2 * pad) // step), (size + pad - 1) // step) * step
            for size, span, step, pad in zip(x.shape[2:], spans, stride, padding, strict=True)
        ]
        ends = [
            max(0, start + span - size - pad)
            for start, span, size, pad in zip(last, spans, x.shape[2:], padding, strict=True)
        ]
        x = op.Pad(x, numbers(0, 0, *padding, 0, 0, *ends), constant(np.float32(-np.inf)))
        padding = (0, 0)
    y = op.MaxPool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *padding], dilations=dilation)
    return single(y), op.Shape(x)


def max_pool2d_backward(
    g: Value,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    indices: Value,
) -> Value:
    """Each window's gradient goes to the first of its maxima, row by row, as torch has it."""
    y, _ = max_pool2d(x, kernel, stride, padding, dilation, ceil)  # merged with the forward's
    stride = stride or kernel
    _, channels, height, width = x.shape
    if (*kernel, *stride, *padding, *dilation) == (2, 2, 2, 2, 0, 0, 1, 1) and not ceil:
        return _halved(g, x, y, channels, height, width)
    rows, columns = g.shape[2:]
    ends = [
        max(0, (out - 1) * step + spread * (size - 1) + 1 - pad - long)
        for out, step, spread, size, pad, long in zip(
            (rows, columns), stride, dilation, kernel, padding, (height, width), strict=True
        )
    ]
    sides = numbers(0, 0, *padding, 0, 0, *ends)
    padded = op.Pad(x, sides, constant(np.float32(-np.inf))) if any(padding) or any(ends) else x
    left, parts = g, []
    for a in range(kernel[0]):
        for b in range(kernel[1]):
            start = a * dilation[0], b * dilation[1]
            end = start[0] + (rows - 1) * stride[0] + 1, start[1] + (columns - 1) * stride[1] + 1
            seen = op.Slice(padded, numbers(*start), numbers(*end), numbers(2, 3), numbers(*stride))
            part = op.Where(op.Equal(seen, y), left, constant(np.float32(0)))
            left = op.Sub(left, part)
            parts.append(op.Reshape(part, numbers(-1, 1, rows, columns)))
    # Each part back to its place in the window: a transposed convolution with a one for each.
    places = constant(np.eye(len(parts), dtype=np.float32).reshape(len(parts), 1, *kernel))
    dx = op.ConvTranspose(op.Concat(*parts, axis=1), places, strides=stride, dilations=dilation)
    full = [
        (out - 1) * step + spread * (size - 1) + 1
        for out, step, spread, size in zip((rows, columns), stride, dilation, kernel, strict=True)
    ]
    short = [
        max(0, pad + long - have) for pad, long, have in zip(padding, (height, width), full, strict=True)
    ]
    dx = op.Pad(dx, numbers(0, 0, 0, 0, 0, 0, *short)) if any(short) else dx
    inside = numbers(*padding), numbers(padding[0] + height, padding[1] + width), numbers(2, 3)
    return op.Reshape(op.Slice(dx, *inside), numbers(-1, channels, height, width))


def _halved(g: Value, x: Value, y: Value, channels: int, height: int, width: int) -> Value:
    """The usual pool, of two by two: found by smaller pools, which are the cheapest way to take it apart."""
    rows, columns = height // 2, width // 2
    if height % 2 or width % 2:
        x = op.Slice(x, numbers(0, 0), numbers(2 * rows, 2 * columns), numbers(2, 3))

    def where_equal(corner: Sequence[int], share: Value) -> Value:
        largest = single(op.MaxPool(x, kernel_shape=corner, strides=[2, 2]))
        return op.Mul(op.Cast(op.Equal(largest, y), to=1), share)

    top = where_equal([1, 2], g)
    top_left = where_equal([1, 1], top)
    bottom = op.Sub(g, top)
    bottom_left = where_equal([2, 1], bottom)
    corners = top_left, op.Sub(top, top_left), bottom_left, op.Sub(bottom, bottom_left)
    a, b, c, d = (op.Reshape(corner, numbers(-1, 1)) for corner in corners)
    upper = op.Reshape(op.Concat(a, b, axis=1), numbers(-1, 1, 2 * columns))
    lower = op.Reshape(op.Concat(c, d, axis=1), numbers(-1, 1, 2 * columns))
    dx = op.Reshape(op.Concat(upper, lower, axis=1), numbers(-1, channels, 2 * rows, 2 * columns))
    return op.Pad(dx, numbers(0, 0, 0, 0, 0, 0, height % 2, width % 2)) if height % 2 or width % 2 else dx


def avg_pool2d_backward(
    g: Value,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Value:
    """Averaging is a product with one matrix for the rows and one for the columns; so is its transpose."""
    rows, columns = (
        _windows(x.shape[2 + i], g.shape[2 + i], kernel[i], (stride or kernel)[i], padding[i], count_padding)
        for i in (0, 1)
    )
    if divisor is not None:
        rows, columns = np.sign(rows), np.sign(columns) * np.float32(1 / divisor)
    return op.MatMul(constant(rows.T), op.MatMul(g, constant(columns)))


def adaptive_avg_pool2d_backward(g: Value, x: Value) -> Value:
    rows, columns = (_shares(x.shape[2 + i], g.shape[2 + i]) for i in (0, 1))
    return op.MatMul(constant(rows.T), op.MatMul(g, constant(columns)))


def _windows(
    size: int, out: int, kernel: int, stride: int, padding: int, count_padding: bool
) -> NDArray[np.float32]:
    """float32 [out, size]: average over windows of `kernel`, which end `padding` beyond the edges at most."""
    matrix = np.zeros((out, size), np.float32)
    for row in range(out):
        start = row * stride - padding
        end = min(start + kernel, size + padding)
        first, last = max(start, 0), min(end, size)
        matrix[row, first:last] = 1 / (end - start if count_padding else last - first)
    return matrix


def _shares(size: int, out: int) -> NDArray[np.float32]:
    """float32 [out, size]: average over `out` windows that cover the axis evenly."""
    matrix = np.zeros((out, size), np.float32)
    for row in range(out):
        first, last = row * size // out, -(-(row + 1) * size // out)
        matrix[row, first:last] = 1 / (last - first)
    return matrix
