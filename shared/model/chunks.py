"""A model in chunks: parts that are exchanged one by one, while the rest trains (staggered EASGD).

D. Svoboda and A. Aggarwal, "Communication efficient distributed SGD", section 3.1: "The model's parameters
are split by layer and each layer is further split into chunks of 100,000 parameters."
"""

from dataclasses import dataclass
from itertools import groupby

from edgeflock.shared.model.layout import Layout

MOST_CHUNKS = 4096
"""Of a model. Each has a message of its own."""


@dataclass(frozen=True, slots=True)
class ParameterRange:
    """theta[start:stop], of trained parameters."""

    start: int
    stop: int
    layout: Layout
    """Of these parameters alone: the parts of tensors that lie in it, as vectors."""


def chunks(layout: Layout, size: int) -> list[ParameterRange]:
    """The parameters of each layer, in chunks of `size` and a last one of what is left; all as one if 0.

    A layer is the tensors behind each other whose names have the same beginning, up to the last dot.
    """
    layout = layout.parameters
    if not size:
        return [ParameterRange(0, layout.size, layout)]
    cut = []
    for _, tensors in groupby(layout.tensors, key=lambda tensor: tensor.name.rpartition(".")[0]):
        bounds = [(tensor.start, tensor.stop) for tensor in tensors]
        start, end = bounds[0][0], bounds[-1][1]
        cut += [(at, min(at + size, end)) for at in range(start, end, size)]
    return [ParameterRange(start, stop, _within(layout, start, stop)) for start, stop in cut]


def phase(number: int, count: int, period: int) -> int:
    """After which step of each `period` chunk `number` of `count` is exchanged: 0 to period - 1.

    They are spread as evenly as can be.
    """
    return number * period // count


def _within(layout: Layout, start: int, stop: int) -> Layout:
    return Layout.of(
        (tensor.name, (min(tensor.stop, stop) - max(tensor.start, start),))
        for tensor in layout.tensors
        if tensor.start < stop and tensor.stop > start
    )
