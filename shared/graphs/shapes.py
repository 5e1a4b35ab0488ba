"""Shape rules of operators, after ONNX's rules (opset 18): the shapes of results from those of inputs.

These rules (tensor_info.py) are for operators that work on single entries, or that arrange, pick or reduce
entries. products.py has those of products.
"""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from edgeflock.shared.graphs.graph import BOOL, FLOAT, INT64, TYPES, GraphConstant, Node
from edgeflock.shared.graphs.tensor_info import Given, Shape, TensorInfo, axes_of, integer, no_less


def like_first(node: Node, given: Given) -> list[TensorInfo]:
    return [TensorInfo(given[0].type, given[0].shape)]


def broadcast(node: Node, given: Given) -> list[TensorInfo]:
    shapes = [seen.shape for seen in given if seen is not None]
    return [TensorInfo(given[0].type, np.broadcast_shapes(*shapes))]


def compared(node: Node, given: Given) -> list[TensorInfo]:
    return [TensorInfo(BOOL, broadcast(node, given)[0].shape)]


def chosen(node: Node, given: Given) -> list[TensorInfo]:
    """The rule of Where."""
    return [TensorInfo(given[1].type, broadcast(node, given)[0].shape)]


def cast(node: Node, given: Given) -> list[TensorInfo]:
    kind = integer(node, "to")
    if kind not in TYPES:
        raise ValueError(f"entries of type {kind}")
    return [TensorInfo(kind, given[0].shape)]


def shape(node: Node, given: Given) -> list[TensorInfo]:
    """The rule of Shape, with a range of dimensions."""
    taken = given[0].shape[slice(integer(node, "start", 0), node.attributes.get("end"))]
    return [TensorInfo(INT64, (len(taken),), np.array(taken, np.int64))]


def size(node: Node, given: Given) -> list[TensorInfo]:
    return [TensorInfo(INT64, (), np.array(prod(given[0].shape), np.int64))]


def constant_of_shape(node: Node, given: Given) -> list[TensorInfo]:
    value = node.attributes.get("value")
    kind = value.type if isinstance(value, GraphConstant) else FLOAT
    return [TensorInfo(kind, no_less(given[0].numbers()))]


def range_of(node: Node, given: Given) -> list[TensorInfo]:
    first, end, step = (seen.numbers()[0] for seen in given[:3])
    return [TensorInfo(given[0].type, (max(0, -((first - end) // step)),))]


def reshape(node: Node, given: Given) -> list[TensorInfo]:
    wanted = given[1].numbers()
    if not integer(node, "allowzero", 0):
        wanted = [given[0].shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    count = prod(given[0].shape)
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = count // rest
    if prod(wanted) != count:
        raise ValueError(f"{count} entries become a shape of {wanted}")
    return [TensorInfo(given[0].type, no_less(wanted))]


def expand(node: Node, given: Given) -> list[TensorInfo]:
    return [TensorInfo(given[0].type, np.broadcast_shapes(given[0].shape, no_less(given[1].numbers())))]


def tile(node: Node, given: Given) -> list[TensorInfo]:
    times = given[1].numbers()
    return [TensorInfo(given[0].type, no_less([a * b for a, b in zip(given[0].shape, times, strict=True)]))]


def transpose(node: Node, given: Given) -> list[TensorInfo]:
    old = given[0].shape
    order: Any = node.attributes.get("perm", tuple(reversed(range(len(old)))))
    if sorted(order) != list(range(len(old))):
        raise ValueError(f"{order} is no order of {len(old)} axes")
    return [TensorInfo(given[0].type, tuple(old[axis] for axis in order))]


def unsqueeze(node: Node, given: Given) -> list[TensorInfo]:
    axes = given[1].numbers()
    new = list(given[0].shape)
    for axis in sorted(axes_of(axes, len(new) + len(axes))):
        new.insert(axis, 1)
    return [TensorInfo(given[0].type, tuple(new))]


def squeeze(node: Node, given: Given) -> list[TensorInfo]:
    old = given[0].shape
    gone = [axis for axis, size in enumerate(old) if size == 1]
    if len(given) > 1 and given[1] is not None:
        gone = axes_of(given[1].numbers(), len(old))
    if any(old[axis] != 1 for axis in gone):
        raise ValueError(f"axes {gone} of {old} are not all 1")
    return [TensorInfo(given[0].type, tuple(size for axis, size in enumerate(old) if axis not in gone))]


def concat(node: Node, given: Given) -> list[TensorInfo]:
    parts = [seen for seen in given if seen is not None]
    (axis,) = axes_of([integer(node, "axis")], len(parts[0].shape))
    if len({(*seen.shape[:axis], *seen.shape[axis + 1 :]) for seen in parts}) > 1:
        raise ValueError("parts of other shapes")
    new = list(parts[0].shape)
    new[axis] = sum(seen.shape[axis] for seen in parts)
    return [TensorInfo(parts[0].type, tuple(new))]


def split(node: Node, given: Given) -> list[TensorInfo]:
    old = given[0].shape
    (axis,) = axes_of([integer(node, "axis", 0)], len(old))
    parts = integer(node, "num_outputs", len(node.outputs))
    each = ceil(old[axis] / parts)
    sizes = [each] * (parts - 1) + [old[axis] - each * (parts - 1)]
    if given[1] is not None:
        sizes = given[1].numbers()
    if len(sizes) != len(node.outputs) or sum(sizes) != old[axis]:
        raise ValueError(f"{old[axis]} apart as {sizes}")
    return [TensorInfo(given[0].type, no_less([*old[:axis], part, *old[axis + 1 :]])) for part in sizes]


def sliced(node: Node, given: Given) -> list[TensorInfo]:
    new = list(given[0].shape)
    for axis, part in slices(given, given[0].shape).items():
        new[axis] = len(range(*part.indices(new[axis])))
    return [TensorInfo(given[0].type, tuple(new))]


def slices(given: Given, old: Shape) -> dict[int, slice]:
    """For Slice: axis -> the Python slice that stays."""
    starts, ends = given[1].numbers(), given[2].numbers()
    axes = list(range(len(starts))) if given[3] is None else given[3].numbers()
    steps = [1] * len(starts) if given[4] is None else given[4].numbers()
    parts = {}
    for axis, start, end, step in zip(axes_of(axes, len(old)), starts, ends, steps, strict=True):
        if step < 0 and start < -old[axis]:  # ONNX then begins at the first entry, Python at none
            raise ValueError(f"down from {start}")
        parts[axis] = slice(start, end, step)
    return parts


def pad(node: Node, given: Given) -> list[TensorInfo]:
    old, sides = given[0].shape, given[1].numbers()
    axes = list(range(len(old))) if given[3] is None else axes_of(given[3].numbers(), len(old))
    new = list(old)
    for axis, before, after in zip(axes, sides[: len(axes)], sides[len(axes) :], strict=True):
        new[axis] += before + after
    return [TensorInfo(given[0].type, no_less(new))]


def gather(node: Node, given: Given) -> list[TensorInfo]:
    old = given[0].shape
    (axis,) = axes_of([integer(node, "axis", 0)], len(old))
    return [TensorInfo(given[0].type, (*old[:axis], *given[1].shape, *old[axis + 1 :]))]


def gather_elements(node: Node, given: Given) -> list[TensorInfo]:
    return [TensorInfo(given[0].type, given[1].shape)]


def gather_nd(node: Node, given: Given) -> list[TensorInfo]:
    *places, depth = given[1].shape
    return [TensorInfo(given[0].type, (*places, *given[0].shape[depth + integer(node, "batch_dims", 0) :]))]


def reduced(node: Node, given: Given) -> list[TensorInfo]:
    old = given[0].shape
    if given[1] is None or not given[1].numbers():
        if integer(node, "noop_with_empty_axes", 0):
            return like_first(node, given)
        axes = list(range(len(old)))
    else:
        axes = axes_of(given[1].numbers(), len(old))
    return [TensorInfo(given[0].type, _without(old, axes, integer(node, "keepdims", 1)))]


def where_largest(node: Node, given: Given) -> list[TensorInfo]:
    """The rule of ArgMax."""
    old = given[0].shape
    axes = axes_of([integer(node, "axis", 0)], len(old))
    return [TensorInfo(INT64, _without(old, axes, integer(node, "keepdims", 1)))]


def layer_norm(node: Node, given: Given) -> list[TensorInfo]:
    x = given[0].shape
    (axis,) = axes_of([integer(node, "axis", -1)], len(x))
    of_each = TensorInfo(FLOAT, (*x[:axis], *[1] * (len(x) - axis)))
    return [TensorInfo(given[0].type, x), of_each, of_each][: len(node.outputs)]


def _without(old: Shape, axes: Sequence[int], keep: int) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(old) if keep or axis not in axes)
