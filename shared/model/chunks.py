"""Chunks of a model, which are exchanged one by one while the rest trains (staggered EASGD).

D. Svoboda and A. Aggarwal, "Communication efficient distributed SGD", section 3.1: "The model's parameters
are split by layer and each layer is further split into chunks of 100,000 parameters."
"""

from dataclasses import dataclass
from itertools import groupby

from edgeflock.shared.model.layout import Layout

MAX_CHUNKS = 4096
"""The most chunks of a model. Each chunk has its own message."""


@dataclass(frozen=True, slots=True)
class ParameterRange:
    """theta[start:stop], of trained parameters."""

    start: int
    stop: int
    layout: Layout
    """The layout of these parameters: the parts of tensors in this range, as vectors."""


def chunks(layout: Layout, size: int) -> list[ParameterRange]:
    """Split the parameters of each layer into chunks of `size`, the last one shorter; 0: one chunk for all.

    A layer is the consecutive tensors whose names have the same beginning, up to the last dot.
    """
    layout = layout.parameters
    if not size:
        return [ParameterRange(0, layout.size, layout)]
    cut = []
    for _, tensors in groupby(layout.tensors, key=lambda tensor: tensor.name.rpartition(".")[0]):
        bounds = [(tensor.start, tensor.stop) for tensor in tensors]
        start, end = bounds[0][0], bounds[-1][1]
        cut += [(offset, min(offset + size, end)) for offset in range(start, end, size)]
    return [ParameterRange(start, stop, _sub_layout(layout, start, stop)) for start, stop in cut]


def phase(number: int, count: int, period: int) -> int:
    """The step of each `period` after which chunk `number` of `count` is exchanged: 0 to period - 1.

    The chunks are spread as evenly as possible.
    """
    return number * period // count


def _sub_layout(layout: Layout, start: int, stop: int) -> Layout:
    return Layout.from_shapes(
        (tensor.name, (min(tensor.stop, stop) - max(tensor.start, start),))
        for tensor in layout.tensors
        if tensor.start < stop and tensor.stop > start
    )
