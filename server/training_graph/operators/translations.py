"""Operators that torch does not translate to ONNX, or not well, mostly of the backward pass.

Each function takes an operator's arguments and adds nodes that compute its results. Tensors are values of the
graph under construction, whose shapes are known except the batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from onnxscript import opset18 as op

from edgeflock.server.training_graph.operators import pooling, scanning
from edgeflock.server.training_graph.operators.convolution import convolution_backward
from edgeflock.server.training_graph.operators.onnx_values import Value, constant, first_output, numbers, pad

aten = torch.ops.aten


def batch_norm(
    x: Value, weight: Value, bias: Value, mean: Value, var: Value, training: bool, momentum: float, eps: float
) -> tuple[Value, ...]:
    """(y, batch mean, 1 / batch deviation, new running mean, new running variance)."""
    if not training:
        channels = x.shape[1]
        scale, offset = _or_full(weight, 1, channels), _or_full(bias, 0, channels)
        y = op.BatchNormalization(x, scale, offset, mean, var, epsilon=eps)
        return y, mean, mean, mean, var
    axes, spread = _per_channel(x)
    batch_mean = op.ReduceMean(x, axes, keepdims=0)
    centred = op.Sub(x, op.Reshape(batch_mean, spread))
    variance = op.ReduceMean(op.Mul(centred, centred), axes, keepdims=0)
    rstd = op.Reciprocal(op.Sqrt(op.Add(variance, constant(np.float32(eps)))))
    scale = rstd if weight is None else op.Mul(rstd, weight)
    if bias is None:
        y = op.Mul(centred, op.Reshape(scale, spread))
    else:
        y = _affine(centred, scale, bias)
    if mean is None:
        return y, batch_mean, rstd
    # The running variance is unbiased: n / (n - 1) of the batch's.
    count = op.CastLike(op.Div(op.Size(x), op.Size(batch_mean)), batch_mean)
    unbiased = op.Div(op.Mul(variance, count), op.Sub(count, constant(np.float32(1))))
    return y, batch_mean, rstd, _mix(mean, batch_mean, momentum), _mix(var, unbiased, momentum)


def _mix(old: Value, new: Value, momentum: float) -> Value:
    if momentum == 1:
        return op.Identity(new)
    rest = op.Mul(old, constant(np.float32(1 - momentum)))
    return op.Add(rest, op.Mul(new, constant(np.float32(momentum))))


def batch_norm_backward(
    g: Value,
    x: Value,
    weight: Value,
    mean: Value,
    var: Value,
    batch_mean: Value,
    rstd: Value,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[Value, Value, Value]:
    """Return (dx, d weight, d bias).

    For the batch's own statistics:

    dx = s g - s mean(g) - s r^2 mean(g (x - m)) (x - m), s = weight r, three numbers per channel. For running
    statistics, which do not depend on x: dx = s g.
    """
    axes, spread = _per_channel(x)
    if not training:
        batch_mean = mean
        rstd = op.Reciprocal(op.Sqrt(op.Add(var, constant(np.float32(eps)))))
    centred = op.Sub(x, op.Reshape(batch_mean, spread))  # merged with the forward's
    towards = op.ReduceSum(op.Mul(g, centred), axes, keepdims=0)
    total = op.ReduceSum(g, axes, keepdims=0)
    scale = rstd if weight is None else op.Mul(weight, rstd)
    if not training:
        return op.Mul(g, op.Reshape(scale, spread)), op.Mul(towards, rstd), total
    count = op.CastLike(op.Div(op.Size(x), op.Size(rstd)), rstd)
    slope = op.Div(op.Mul(op.Mul(scale, towards), op.Mul(rstd, rstd)), count)
    offset = op.Div(op.Mul(scale, total), count)
    dx = op.Sub(op.Mul(g, op.Reshape(scale, spread)), _affine(centred, slope, offset))
    return dx, op.Mul(towards, rstd), total


def _affine(x: Value, scale: Value, offset: Value) -> Value:
    """Return scale x + offset by channel, in one pass: a batch normalisation with mean 0 and variance 1."""
    zero = op.Sub(scale, scale)
    return first_output(
        op.BatchNormalization(x, scale, offset, zero, op.Add(zero, constant(np.float32(1))), epsilon=0.0)
    )


def _per_channel(x: Value) -> tuple[Value, Value]:
    """(all axes of x except the channels', the shape in which a vector of channels broadcasts to x)."""
    rank = len(x.shape)
    return numbers(0, *range(2, rank)), numbers(1, -1, *[1] * (rank - 2))


def batch_norm_without_statistics(
    x: Value, weight: Value, bias: Value, training: bool, momentum: float, eps: float
) -> tuple[Value, ...]:
    """`batch_norm` for a layer without running statistics, such as instance norm."""
    return batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


def dropout(x: Value, share: float, training: bool | None) -> tuple[Value, Value]:
    """(y, mask of kept entries). torch's own translation does not pass the check."""
    if not training or share == 0:
        return op.Identity(x), op.Equal(x, x)
    kept = op.GreaterOrEqual(op.RandomUniformLike(x), constant(np.float32(share)))
    factor = 1 / (1 - share) if share < 1 else 0.0
    return op.Mul(x, op.Mul(op.CastLike(kept, x), constant(np.float32(factor)))), kept


def _or_full(value: Value, otherwise: float, size: int) -> Value:
    return constant(np.full(size, otherwise, np.float32)) if value is None else value


def group_norm(
    x: Value, weight: Value, bias: Value, batch: Value, channels: int, pixels: int, groups: int, eps: float
) -> tuple[Value, Value, Value]:
    """(y, mean [N, G], 1 / deviation [N, G])."""
    by_group = numbers(0, groups, channels // groups, pixels)
    x4 = op.Reshape(x, by_group)
    mean = op.ReduceMean(x4, numbers(2, 3), keepdims=1)
    centred = op.Sub(x4, mean)
    variance = op.ReduceMean(op.Mul(centred, centred), numbers(2, 3), keepdims=1)
    rstd = op.Reciprocal(op.Sqrt(op.Add(variance, constant(np.float32(eps)))))
    column = numbers(groups, channels // groups, 1)
    scale = rstd if weight is None else op.Mul(rstd, op.Reshape(weight, column))
    y = op.Mul(centred, scale)
    if bias is not None:
        y = op.Add(y, op.Reshape(bias, column))
    return op.Reshape(y, op.Shape(x)), *(op.Reshape(value, numbers(0, groups)) for value in (mean, rstd))


def group_norm_backward(
    g: Value,
    x: Value,
    mean: Value,
    rstd: Value,
    weight: Value,
    batch: Value,
    channels: int,
    pixels: int,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Value, Value, Value]:
    """(dx, d weight, d bias). With h = weight g and n the normalised x, dx = r (h - mean(h) - n mean(h n)).

    The means over a group are weighted sums of its channels' sums of g and of g n. The gradients of weight
    and bias need those sums anyway.
    """
    by_group, of_groups = numbers(0, groups, channels // groups, pixels), numbers(0, groups, 1, 1)
    count = constant(np.float32(channels // groups * pixels))
    rstd = op.Reshape(rstd, of_groups)
    centred = op.Sub(op.Reshape(x, by_group), op.Reshape(mean, of_groups))  # merged with the forward's
    gs = op.Reshape(g, by_group)
    by_one = op.ReduceSum(gs, numbers(3), keepdims=1)  # [N, G, C / G, 1]
    by_normal = op.Mul(op.ReduceSum(op.Mul(gs, centred), numbers(3), keepdims=1), rstd)
    scale = rstd
    if weight is not None:
        scale = op.Mul(rstd, op.Reshape(weight, numbers(groups, channels // groups, 1)))

    def mean_of(sums: Value) -> Value:
        """[N, G, 1, 1]: the mean of r times a group's weighted sums."""
        return op.Div(op.ReduceSum(op.Mul(sums, scale), numbers(2), keepdims=1), count)

    pull = op.Add(op.Mul(centred, op.Mul(mean_of(by_normal), rstd)), mean_of(by_one))
    dx = op.Sub(op.Mul(gs, scale), pull)
    sums = (op.Reshape(op.ReduceSum(v, numbers(0), keepdims=0), numbers(-1)) for v in (by_normal, by_one))
    return op.Reshape(dx, op.Shape(x)), *sums


def relu_backward(g: Value, y: Value, threshold: float) -> Value:
    """Return g where y > threshold."""
    if threshold != 0:
        return op.Where(op.Greater(y, constant(np.float32(threshold))), g, constant(np.float32(0)))
    # This steep sigmoid is one for every y > 1e-38. It needs one pass for the mask, a comparison two.
    return op.Mul(g, op.HardSigmoid(y, alpha=3e38, beta=0.0))


def select_backward(g: Value, sizes: Sequence[Any], axis: int, index: int) -> Value:
    """Zeros of the given sizes, with g at `index` of `axis`."""
    axis, size = axis % len(sizes), sizes[axis]
    if not isinstance(size, int):
        raise NotImplementedError("one sample of a batch cannot train in ONNX")
    before = index % size
    return pad(op.Unsqueeze(g, numbers(axis)), axis, len(sizes), before, size - 1 - before)


_OPEN_END = 1 << 62
"""More than the size of any axis. torch writes 2^63 - 1 for an open end."""


def slice_backward(g: Value, sizes: Sequence[Any], axis: int, start: int, end: int, step: int) -> Value:
    """Zeros of the given sizes, with g at every `step` from `start` on along `axis`."""
    axis, size = axis % len(sizes), sizes[axis]
    if not isinstance(size, int):
        if (start, step) == (0, 1) and end >= _OPEN_END:
            return op.Identity(g)
        raise NotImplementedError("a part of a batch cannot train in ONNX")
    start = min(start % size if start < 0 else start, size)
    long = g.shape[axis]
    if step > 1:  # zeros between the entries: pad a new axis, and merge it with its neighbour
        g = pad(op.Unsqueeze(g, numbers(axis + 1)), axis + 1, len(sizes) + 1, 0, step - 1)
        g = op.Reshape(g, numbers(*[0] * axis, long * step, *sizes[axis + 1 :]))
        g = op.Slice(g, numbers(0), numbers(size - start), numbers(axis))
        long = min(long * step, size - start)
    return pad(g, axis, len(sizes), start, size - start - long)


TRANSLATIONS: dict[Any, Callable[..., Any]] = {
    aten.threshold_backward.default: relu_backward,
    aten.select_backward.default: select_backward,
    aten.slice_backward.default: slice_backward,
    aten.convolution_backward.default: convolution_backward,
    aten._native_batch_norm_legit_functional.default: batch_norm,
    aten.native_batch_norm_backward.default: batch_norm_backward,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_statistics,
    aten.native_dropout.default: dropout,
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_backward,
    aten.max_pool2d_with_indices.default: pooling.max_pool,
    aten.max_pool2d_with_indices_backward.default: pooling.max_pool_backward,
    aten.max_pool3d_with_indices.default: pooling.max_pool,
    aten.max_pool3d_with_indices_backward.default: pooling.max_pool_backward,
    aten.avg_pool2d_backward.default: pooling.avg_pool_backward,
    aten.avg_pool3d_backward.default: pooling.avg_pool_backward,
    aten._adaptive_avg_pool2d_backward.default: pooling.adaptive_avg_pool_backward,
    aten._adaptive_avg_pool3d.default: pooling.adaptive_avg_pool,
    aten._adaptive_avg_pool3d_backward.default: pooling.adaptive_avg_pool_backward,
    torch.ops.edgeflock.scan.default: scanning.to_onnx,
}
