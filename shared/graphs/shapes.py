"""How large an operator's results are, of how large what it takes is; by ONNX's rules (opset 18).

A rule is a function (node, what it takes) -> the results' types and shapes. What an operator leaves out is
None. Where a shape is the value of another tensor, that must be known; a step of which it is not could take
any amount of memory. Rules may raise anything of MISFITS for what does not fit together.
"""

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.graph import BOOL, FLOAT, INT64, TYPES, Node, Tensor

Shape = tuple[int, ...]

MISFITS = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError, AttributeError)


class Seen(NamedTuple):
    """What is known of a tensor before anything is computed."""

    type: int
    shape: Shape
    known: NDArray[Any] | None = None
    """Its entries, where they depend on shapes alone and are few."""

    def numbers(self) -> list[int]:
        """The entries of one whose values are a shape, axes or bounds. Raises BadGraph if nobody knows."""
        if self.known is None:
            raise BadGraph("a shape in it depends on values, so that nobody can tell how large it becomes")
        return [int(number) for number in self.known.ravel()]


Given = Sequence[Any]
"""A Seen for each input, None for one left out, and as many None behind them as one likes to look at."""

Rule = Callable[[Node, Given], list[Seen]]


def like_first(node: Node, given: Given) -> list[Seen]:
    return [Seen(given[0].type, given[0].shape)]


def broadcast(node: Node, given: Given) -> list[Seen]:
    shapes = [seen.shape for seen in given if seen is not None]
    return [Seen(given[0].type, np.broadcast_shapes(*shapes))]


def compared(node: Node, given: Given) -> list[Seen]:
    return [Seen(BOOL, broadcast(node, given)[0].shape)]


def chosen(node: Node, given: Given) -> list[Seen]:
    """Where."""
    return [Seen(given[1].type, broadcast(node, given)[0].shape)]


def cast(node: Node, given: Given) -> list[Seen]:
    kind = _integer(node, "to")
    if kind not in TYPES:
        raise ValueError(f"entries of type {kind}")
    return [Seen(kind, given[0].shape)]


def shape(node: Node, given: Given) -> list[Seen]:
    """Shape, of some of the dimensions."""
    taken = given[0].shape[slice(_integer(node, "start", 0), node.attributes.get("end"))]
    return [Seen(INT64, (len(taken),), np.array(taken, np.int64))]


def size(node: Node, given: Given) -> list[Seen]:
    return [Seen(INT64, (), np.array(prod(given[0].shape), np.int64))]


def constant_of_shape(node: Node, given: Given) -> list[Seen]:
    value = node.attributes.get("value")
    kind = value.type if isinstance(value, Tensor) else FLOAT
    return [Seen(kind, _no_less(given[0].numbers()))]


def range_of(node: Node, given: Given) -> list[Seen]:
    first, end, step = (seen.numbers()[0] for seen in given[:3])
    return [Seen(given[0].type, (max(0, -((first - end) // step)),))]


def reshape(node: Node, given: Given) -> list[Seen]:
    wanted = given[1].numbers()
    if not _integer(node, "allowzero", 0):
        wanted = [given[0].shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    count = prod(given[0].shape)
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = count // rest
    if prod(wanted) != count:
        raise ValueError(f"{count} entries become a shape of {wanted}")
    return [Seen(given[0].type, _no_less(wanted))]


def expand(node: Node, given: Given) -> list[Seen]:
    return [Seen(given[0].type, np.broadcast_shapes(given[0].shape, _no_less(given[1].numbers())))]


def tile(node: Node, given: Given) -> list[Seen]:
    times = given[1].numbers()
    return [Seen(given[0].type, _no_less([a * b for a, b in zip(given[0].shape, times, strict=True)]))]


def transpose(node: Node, given: Given) -> list[Seen]:
    old = given[0].shape
    order: Any = node.attributes.get("perm", tuple(reversed(range(len(old)))))
    if sorted(order) != list(range(len(old))):
        raise ValueError(f"{order} is no order of {len(old)} axes")
    return [Seen(given[0].type, tuple(old[axis] for axis in order))]


def unsqueeze(node: Node, given: Given) -> list[Seen]:
    axes = given[1].numbers()
    new = list(given[0].shape)
    for axis in sorted(_axes(axes, len(new) + len(axes))):
        new.insert(axis, 1)
    return [Seen(given[0].type, tuple(new))]


def squeeze(node: Node, given: Given) -> list[Seen]:
    old = given[0].shape
    gone = [axis for axis, size in enumerate(old) if size == 1]
    if len(given) > 1 and given[1] is not None:
        gone = _axes(given[1].numbers(), len(old))
    if any(old[axis] != 1 for axis in gone):
        raise ValueError(f"axes {gone} of {old} are not all 1")
    return [Seen(given[0].type, tuple(size for axis, size in enumerate(old) if axis not in gone))]


def concat(node: Node, given: Given) -> list[Seen]:
    parts = [seen for seen in given if seen is not None]
    (axis,) = _axes([_integer(node, "axis")], len(parts[0].shape))
    if len({(*seen.shape[:axis], *seen.shape[axis + 1 :]) for seen in parts}) > 1:
        raise ValueError("parts of other shapes")
    new = list(parts[0].shape)
    new[axis] = sum(seen.shape[axis] for seen in parts)
    return [Seen(parts[0].type, tuple(new))]


def split(node: Node, given: Given) -> list[Seen]:
    old = given[0].shape
    (axis,) = _axes([_integer(node, "axis", 0)], len(old))
    parts = _integer(node, "num_outputs", len(node.outputs))
    each = ceil(old[axis] / parts)
    sizes = [each] * (parts - 1) + [old[axis] - each * (parts - 1)]
    if given[1] is not None:
        sizes = given[1].numbers()
    if len(sizes) != len(node.outputs) or sum(sizes) != old[axis]:
        raise ValueError(f"{old[axis]} apart as {sizes}")
    return [Seen(given[0].type, _no_less([*old[:axis], part, *old[axis + 1 :]])) for part in sizes]


def sliced(node: Node, given: Given) -> list[Seen]:
    new = list(given[0].shape)
    for axis, part in slices(given, given[0].shape).items():
        new[axis] = len(range(*part.indices(new[axis])))
    return [Seen(given[0].type, tuple(new))]


def slices(given: Given, old: Shape) -> dict[int, slice]:
    """Of Slice: axis -> what stays of it, as Python has it."""
    starts, ends = given[1].numbers(), given[2].numbers()
    axes = list(range(len(starts))) if given[3] is None else given[3].numbers()
    steps = [1] * len(starts) if given[4] is None else given[4].numbers()
    parts = {}
    for axis, start, end, step in zip(_axes(axes, len(old)), starts, ends, steps, strict=True):
        if step < 0 and start < -old[axis]:  # ONNX begins at the first entry then, Python has none
            raise ValueError(f"down from {start}")
        parts[axis] = slice(start, end, step)
    return parts


def pad(node: Node, given: Given) -> list[Seen]:
    old, sides = given[0].shape, given[1].numbers()
    axes = list(range(len(old))) if given[3] is None else _axes(given[3].numbers(), len(old))
    new = list(old)
    for axis, before, after in zip(axes, sides[: len(axes)], sides[len(axes) :], strict=True):
        new[axis] += before + after
    return [Seen(given[0].type, _no_less(new))]


def gather(node: Node, given: Given) -> list[Seen]:
    old = given[0].shape
    (axis,) = _axes([_integer(node, "axis", 0)], len(old))
    return [Seen(given[0].type, (*old[:axis], *given[1].shape, *old[axis + 1 :]))]


def gather_elements(node: Node, given: Given) -> list[Seen]:
    return [Seen(given[0].type, given[1].shape)]


def gather_nd(node: Node, given: Given) -> list[Seen]:
    *places, depth = given[1].shape
    return [Seen(given[0].type, (*places, *given[0].shape[depth + _integer(node, "batch_dims", 0) :]))]


def reduced(node: Node, given: Given) -> list[Seen]:
    old = given[0].shape
    if given[1] is None or not given[1].numbers():
        if _integer(node, "noop_with_empty_axes", 0):
            return like_first(node, given)
        axes = list(range(len(old)))
    else:
        axes = _axes(given[1].numbers(), len(old))
    return [Seen(given[0].type, _without(old, axes, _integer(node, "keepdims", 1)))]


def matmul(node: Node, given: Given) -> list[Seen]:
    a, b = given[0].shape, given[1].shape
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    if left[-1] != right[-2]:
        raise ValueError(f"{a} times {b}")
    new = np.broadcast_shapes(left[:-2], right[:-2])
    return [Seen(given[0].type, (*new, *left[-2:-1] * (len(a) > 1), *right[-1:] * (len(b) > 1)))]


def gemm(node: Node, given: Given) -> list[Seen]:
    (m, k), (rows, n) = (
        seen.shape[::-1] if _integer(node, name, 0) else seen.shape
        for seen, name in zip(given[:2], ("transA", "transB"), strict=True)
    )
    if k != rows:
        raise ValueError(f"{m} x {k} times {rows} x {n}")
    return [Seen(given[0].type, (m, n))]


def conv(node: Node, given: Given) -> list[Seen]:
    x, w = given[0].shape, given[1].shape
    if x[1] != w[1] * _integer(node, "group", 1):
        raise ValueError(f"{x[1]} channels, for {w[1]} of a group")
    return [Seen(given[0].type, (x[0], w[0], *_windows(node, x[2:], w[2:])))]


def conv_transpose(node: Node, given: Given) -> list[Seen]:
    x, w = given[0].shape, given[1].shape
    rank = len(x) - 2
    strides, dilations, more, pads = (
        _integers(node, name, (default,) * count)
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
    return [Seen(given[0].type, _no_less([x[0], w[1] * _integer(node, "group", 1), *new]))]


def pool(node: Node, given: Given) -> list[Seen]:
    """MaxPool, without where the maxima are, and AveragePool."""
    x = given[0].shape
    new = (*x[:2], *_windows(node, x[2:], _integers(node, "kernel_shape", ())))
    return [Seen(given[0].type, new)]


def layer_norm(node: Node, given: Given) -> list[Seen]:
    x = given[0].shape
    (axis,) = _axes([_integer(node, "axis", -1)], len(x))
    of_each = Seen(FLOAT, (*x[:axis], *[1] * (len(x) - axis)))
    return [Seen(given[0].type, x), of_each, of_each][: len(node.outputs)]


def few(shape: Sequence[int]) -> bool:
    """Whether the entries of a tensor are worth to be known."""
    return prod(shape) <= 1 << 12


def _windows(node: Node, sizes: Shape, kernel: Shape) -> list[int]:
    """How often a kernel fits."""
    rank = len(sizes)
    strides = _integers(node, "strides", (1,) * rank)
    dilations = _integers(node, "dilations", (1,) * rank)
    pads = _integers(node, "pads", (0,) * (2 * rank))
    up = _integer(node, "ceil_mode", 0)
    new = []
    for size, taps, step, spread, before, after in zip(
        sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True
    ):
        room = size + before + after - (taps - 1) * spread - 1
        new.append((-(-room // step) if up else room // step) + 1)
        if step < 1 or taps < 1 or spread < 1 or min(before, after) < 0 or room < 0:
            raise ValueError(f"a window of {taps} on {size}")
    return new


def _without(old: Shape, axes: Sequence[int], keep: int) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(old) if keep or axis not in axes)


def _axes(axes: Sequence[int], rank: int) -> list[int]:
    """From 0 on. Raises ValueError if one is none, or is there twice."""
    found = [axis + rank if axis < 0 else axis for axis in axes]
    if any(not 0 <= axis < rank for axis in found) or len(set(found)) < len(found):
        raise ValueError(f"axes {list(axes)} of {rank}")
    return found


def _no_less(sizes: Sequence[int]) -> Shape:
    """`sizes`, none of which is below 0."""
    if any(size < 0 for size in sizes):
        raise ValueError(f"a shape of {list(sizes)}")
    return tuple(sizes)


def _integer(node: Node, name: str, default: int | None = None) -> int:
    value = node.attributes.get(name, default)
    if not isinstance(value, int):
        raise ValueError(f"it lacks {name}")
    return value


def _integers(node: Node, name: str, default: Shape) -> Shape:
    value: Any = node.attributes.get(name, default)
    if not isinstance(value, tuple) or len(value) != len(default or value):
        raise ValueError(f"{name} is {value}")
    return value
