"""Personal layers: parameters that each device trains for itself and never sends (model.personal).

M. G. Arivazhagan et al., "Federated learning with personalization layers", 2019 (FedPer): the fleet learns
the shared layers, and each device its own last ones. All devices start them from the same values.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start

Vector = NDArray[np.float32]

_OTHER_SEED = 1 << 62
"""Added to a run's seed for personal layers, so that they start with other draws than the shared ones."""


class Personal(NamedTuple):
    """The personal layers of a run, as a Welcome describes them."""

    shapes: list[object]
    """[[name, [dimension, ...]], ...], as Layout.shapes."""
    start: Start
    """Their first values."""

    @classmethod
    def from_msgpack(cls, value: object, name: str = "personal") -> "Personal":
        """Parse [shapes, start] as unpacked from msgpack. Raises Malformed."""
        if type(value) is not list or len(value) != 2 or type(value[0]) is not list:
            raise Malformed(f"{name} must be [shapes, start]")
        return cls(value[0], Start.from_msgpack(value[1], f"{name}.start"))


class SplitLayout:
    """The layout of a whole model, split into shared tensors and personal parameters."""

    def __init__(self, whole: Layout, personal: Iterable[str]) -> None:
        """`personal` are names of parameters. Raises ConfigError if none is left to be shared."""
        names = set(personal)
        self.whole = whole
        self.shared = _part(whole, [tensor.name for tensor in whole.tensors if tensor.name not in names])
        self.personal = _part(whole, [tensor.name for tensor in whole.tensors if tensor.name in names])

    def join(self, shared: Vector, personal: Vector, out: Vector) -> Vector:
        """Write the whole theta into `out`, from theta of the shared and of the personal layers."""
        for part, vector in ((self._places_shared, shared), (self._places_personal, personal)):
            for place, source in part:
                out[place] = vector[source]
        return out

    def split(self, whole: Vector) -> tuple[Vector, Vector]:
        """Return new (shared, personal) parts of theta, or of a gradient, which has no running statistics."""
        size = self.shared.size if whole.size == self.whole.size else self.shared.parameters.size
        shared, personal = np.empty(size, np.float32), np.empty(self.personal.size, np.float32)
        for part, vector in ((self._places_shared, shared), (self._places_personal, personal)):
            for place, target in part:
                if target.stop <= vector.size:
                    vector[target] = whole[place]
        return shared, personal

    def describe(self, start: Start) -> tuple[Start, Personal]:
        """Split the Start of the whole model."""
        by_name = dict(zip((tensor.name for tensor in self.whole.tensors), start.tensors, strict=True))
        shared, personal = (
            tuple(by_name[tensor.name] for tensor in layout.tensors)
            for layout in (self.shared, self.personal)
        )
        own = Start(start.seed ^ _OTHER_SEED, personal)
        return Start(start.seed, shared), Personal(list(self.personal.shapes()), own)

    @cached_property
    def _places_shared(self) -> list[tuple[slice, slice]]:
        return _places(self.whole, self.shared)

    @cached_property
    def _places_personal(self) -> list[tuple[slice, slice]]:
        return _places(self.whole, self.personal)


def personal_names(layout: Layout, patterns: Sequence[str]) -> list[str]:
    """Return the names of the parameters that one of `patterns` matches, such as head.*.

    Raises ConfigError if a pattern matches none.
    """
    names = [tensor.name for tensor in layout.parameters.tensors]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"model.personal: {pattern!r} matches no parameter; the model has {', '.join(names[:20])}"
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def whole_layout(shared: Layout, personal: list[object]) -> Layout:
    """Return the layout of both: all parameters, then the running statistics of the shared layers."""
    shapes, trained = shared.shapes(), len(shared.parameters.tensors)
    entries: list[Any] = [*shapes[:trained], *personal, *shapes[trained:]]
    return Layout.from_shapes(entries)


def _part(whole: Layout, names: Sequence[str]) -> Layout:
    by_name = {tensor.name: tensor for tensor in whole.tensors}
    return Layout.from_shapes((name, by_name[name].shape, by_name[name].buffer) for name in names)


def _places(whole: Layout, part: Layout) -> list[tuple[slice, slice]]:
    """Return (place in the whole theta, place in the part) of each tensor of the part."""
    starts = {tensor.name: tensor.start for tensor in whole.tensors}
    return [
        (slice(starts[t.name], starts[t.name] + t.stop - t.start), slice(t.start, t.stop))
        for t in part.tensors
    ]
