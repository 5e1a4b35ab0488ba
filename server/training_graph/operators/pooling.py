"""Pools and their gradients, in ONNX operators."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from onnxscript import opset18 as op

from edgeflock.server.training_graph.operators.onnx_values import Value, constant, first_output, numbers


def max_pool(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil: bool = False,
) -> tuple[Value, Value]:
    """(y, a placeholder). The indices of maxima are expensive, and the gradient does not need them."""
    stride, padding, dilation = _per_axis(kernel, stride or kernel, padding, dilation)
    sizes = x.shape[2:]
    if ceil:
        # Unlike torch, ONNX has windows that begin beyond the image. The padding sets their number.
        spans = [spread * (size - 1) + 1 for spread, size in zip(dilation, kernel, strict=True)]
        last = [
            min(-((span - size - 2 * pad) // step), (size + pad - 1) // step) * step
            for size, span, step, pad in zip(sizes, spans, stride, padding, strict=True)
        ]
        ends = [
            max(0, start + span - size - pad)
            for start, span, size, pad in zip(last, spans, sizes, padding, strict=True)
        ]
        x = op.Pad(x, numbers(0, 0, *padding, 0, 0, *ends), constant(np.float32(-np.inf)))
        padding = [0] * len(kernel)
    y = op.MaxPool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *padding], dilations=dilation)
    return first_output(y), op.Shape(x)


def max_pool_backward(
    g: Value,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    indices: Value,
) -> Value:
    """Each window's gradient goes to its first maximum in row-major order, as in torch."""
    y, _ = max_pool(x, kernel, stride, padding, dilation, ceil)  # merged with the forward's
    stride, padding, dilation = _per_axis(kernel, stride or kernel, padding, dilation)
    _, channels, *sizes = x.shape
    if (*kernel, *stride, *padding, *dilation) == (2, 2, 2, 2, 0, 0, 1, 1) and not ceil:
        return _pool_two_by_two_backward(g, x, y, channels, *sizes)
    outs, axes = g.shape[2:], numbers(*range(2, len(x.shape)))
    spans = [
        (out - 1) * step + spread * (size - 1) + 1
        for out, step, spread, size in zip(outs, stride, dilation, kernel, strict=True)
    ]
    ends = [max(0, span - pad - size) for span, pad, size in zip(spans, padding, sizes, strict=True)]
    none = [0] * len(kernel)
    sides = numbers(0, 0, *padding, 0, 0, *ends)
    padded = op.Pad(x, sides, constant(np.float32(-np.inf))) if any(padding) or any(ends) else x
    left, parts = g, []
    for place in np.ndindex(*kernel):
        start = [at * spread for at, spread in zip(place, dilation, strict=True)]
        end = [at + (out - 1) * step + 1 for at, out, step in zip(start, outs, stride, strict=True)]
        seen = op.Slice(padded, numbers(*start), numbers(*end), axes, numbers(*stride))
        part = op.Where(op.Equal(seen, y), left, constant(np.float32(0)))
        left = op.Sub(left, part)
        parts.append(op.Reshape(part, numbers(-1, 1, *outs)))
    # A transposed convolution with a one per part moves each part back to its place in the window.
    back = constant(np.eye(len(parts), dtype=np.float32).reshape(len(parts), 1, *kernel))
    dx = op.ConvTranspose(op.Concat(*parts, axis=1), back, strides=stride, dilations=dilation)
    short = [max(0, pad + size - span) for pad, size, span in zip(padding, sizes, spans, strict=True)]
    dx = op.Pad(dx, numbers(0, 0, *none, 0, 0, *short)) if any(short) else dx
    until = (pad + size for pad, size in zip(padding, sizes, strict=True))
    return op.Reshape(op.Slice(dx, numbers(*padding), numbers(*until), axes), numbers(-1, channels, *sizes))


def _per_axis(kernel: Sequence[int], *numbers: Sequence[int]) -> Iterator[list[int]]:
    """Each of `numbers`, repeated to the kernel's length: torch may write one number for all."""
    return (list(some) * (len(kernel) // len(some)) for some in numbers)


def _pool_two_by_two_backward(g: Value, x: Value, y: Value, channels: int, height: int, width: int) -> Value:
    """The usual pool of two by two. Smaller pools find its maxima, which is the cheapest way."""
    rows, columns = height // 2, width // 2
    if height % 2 or width % 2:
        x = op.Slice(x, numbers(0, 0), numbers(2 * rows, 2 * columns), numbers(2, 3))

    def where_equal(corner: Sequence[int], share: Value) -> Value:
        largest = first_output(op.MaxPool(x, kernel_shape=corner, strides=[2, 2]))
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


def avg_pool_backward(
    g: Value,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Value:
    """Averaging is a product with a matrix for each axis. Its gradient uses their transposes."""
    stride, padding = _per_axis(kernel, stride or kernel, padding)
    matrices = [
        _windows(size, out, length, step, pad, count_padding)
        for size, out, length, step, pad in zip(
            x.shape[2:], g.shape[2:], kernel, stride, padding, strict=True
        )
    ]
    if divisor is not None:
        matrices = [np.sign(matrix) for matrix in matrices]
        matrices[-1] *= np.float32(1 / divisor)
    return _multiply_axes(g, matrices)


def adaptive_avg_pool(x: Value, outs: Sequence[int]) -> Value:
    return _multiply_axes(x, [_shares(size, out).T for size, out in zip(x.shape[2:], outs, strict=True)])


def adaptive_avg_pool_backward(g: Value, x: Value) -> Value:
    return _multiply_axes(g, [_shares(size, out) for size, out in zip(x.shape[2:], g.shape[2:], strict=True)])


def _multiply_axes(x: Value, matrices: Sequence[NDArray[np.float32]]) -> Value:
    """Return x with each axis after the channels multiplied by its own matrix [its size, the new size]."""
    sizes, last = [len(matrix) for matrix in matrices], len(matrices) - 1
    for axis in range(last, -1, -1):
        matrix, before = matrices[axis], sizes[: axis + 1]
        sizes[axis] = matrix.shape[1]
        if axis == last:
            x = op.MatMul(x, constant(matrix))
        elif axis == last - 1:
            x = op.MatMul(constant(matrix.T), x)
        else:  # the later axes are merged into one
            x = op.MatMul(constant(matrix.T), op.Reshape(x, numbers(0, 0, *before, -1)))
            x = op.Reshape(x, numbers(0, 0, *sizes))
    return x


def _windows(
    size: int, out: int, kernel: int, stride: int, padding: int, count_padding: bool
) -> NDArray[np.float32]:
    """float32 [out, size]: averages over windows of `kernel`, which cross the edges by at most `padding`."""
    matrix = np.zeros((out, size), np.float32)
    for row in range(out):
        start = row * stride - padding
        end = min(start + kernel, size + padding)
        first, last = max(start, 0), min(end, size)
        matrix[row, first:last] = 1 / (end - start if count_padding else last - first)
    return matrix


def _shares(size: int, out: int) -> NDArray[np.float32]:
    """float32 [out, size]: averages over `out` windows that cover the axis evenly."""
    matrix = np.zeros((out, size), np.float32)
    for row in range(out):
        first, last = row * size // out, -(-(row + 1) * size // out)
        matrix[row, first:last] = 1 / (last - first)
    return matrix
