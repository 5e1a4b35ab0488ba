"""The place of each tensor of a model in the flat vector theta.

P trained parameters come first, then B buffers: the running statistics of normalisation layers, which no
gradient changes. Most models have no buffers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import NamedTuple

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError

_MEANS = {"running_mean": "running_var", "moving_mean": "moving_variance", "mean": "var"}
"""The names of running means in PyTorch, Keras and Flax -> the names of their variances."""

Entry = tuple[str, Iterable[int]] | tuple[str, Iterable[int], bool]
"""(name, shape), and True if the tensor is a buffer."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named tensor: theta[start:stop], reshaped to `shape` in C order."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    buffer: bool = False
    """Whether it is running statistics rather than trained parameters."""

    @property
    def is_variance(self) -> bool:
        """Whether it is a running variance, by its name."""
        return self.buffer and self.name.rpartition(".")[2] in _MEANS.values()


class ExtraState(NamedTuple):
    """The parts of a module's state that theta does not have."""

    tied: Mapping[str, str]
    """Name -> the tensor of the layout with the same content: tied weights."""
    constants: Mapping[str, NDArray[np.generic]]
    """Buffers that do not change and are not sent."""


NO_EXTRA_STATE = ExtraState({}, {})


@dataclass(frozen=True)
class Layout:
    """The tensors of a model in order. Two ends agree on a model if their layouts have equal digests."""

    tensors: tuple[Tensor, ...]

    @classmethod
    def from_shapes(cls, shapes: Iterable[Entry]) -> "Layout":
        """Lay out tensors one after the other.

        Raises ConfigError if there is no parameter, or one after a buffer.
        """
        tensors: list[Tensor] = []
        start = 0
        for name, shape, *rest in shapes:
            dimensions, buffer = tuple(shape), any(rest)
            if tensors and tensors[-1].buffer and not buffer:
                raise ConfigError(f"parameter {name} comes after a buffer; buffers must be last")
            stop = start + prod(dimensions)
            tensors.append(Tensor(name, dimensions, start, stop, buffer))
            start = stop
        if not any(tensor.stop for tensor in tensors if not tensor.buffer):
            raise ConfigError("the model has no parameters, so there is nothing to train")
        return cls(tuple(tensors))

    @property
    def size(self) -> int:
        """Length of theta: P + B."""
        return self.tensors[-1].stop

    @cached_property
    def parameters(self) -> "Layout":
        """The P trained parameters, theta[:P]: gradients and updates have these entries."""
        trained = tuple(tensor for tensor in self.tensors if not tensor.buffer)
        return self if len(trained) == len(self.tensors) else Layout(trained)

    @cached_property
    def buffers(self) -> int:
        """Number of buffers B: theta[P:]."""
        return self.size - self.parameters.size

    @cached_property
    def variances(self) -> NDArray[np.bool_]:
        """Which of theta[P:] are variances, by their names: bool [B]."""
        found = np.zeros(self.buffers, np.bool_)
        for tensor in self.tensors:
            if tensor.is_variance:
                found[self._buffer_slice(tensor)] = True
        return found

    @cached_property
    def norms(self) -> tuple[tuple[slice, slice], ...]:
        """(means, variances) of each normalisation layer, as places in theta[P:].

        Empty if the names of some running statistics do not show what they are.
        """
        by_name = {tensor.name: tensor for tensor in self.tensors if tensor.buffer}
        pairs: list[tuple[slice, slice]] = []
        for tensor in by_name.values():
            layer, dot, last = tensor.name.rpartition(".")
            other = by_name.get(f"{layer}{dot}{_MEANS.get(last, '')}")
            if other is not None and other.shape == tensor.shape:
                pairs.append((self._buffer_slice(tensor), self._buffer_slice(other)))
        return tuple(pairs) if 2 * len(pairs) == len(by_name) else ()

    def _buffer_slice(self, tensor: Tensor) -> slice:
        return slice(tensor.start - self.parameters.size, tensor.stop - self.parameters.size)

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """int64 [T + 1]: tensor t owns the indices bounds[t] <= k < bounds[t + 1]."""
        return np.array([0] + [tensor.stop for tensor in self.tensors], dtype=np.int64)

    @cached_property
    def grids(self) -> NDArray[np.int64]:
        """int64 [T, 2]: (rows, columns) of each tensor as a matrix, its first dimension times the rest.

        A vector or scalar is one row.
        """
        shapes = [(1, *tensor.shape) if len(tensor.shape) < 2 else tensor.shape for tensor in self.tensors]
        return np.array([(shape[0], prod(shape[1:])) for shape in shapes], np.int64)

    @cached_property
    def lines(self) -> NDArray[np.int64]:
        """int64 [T + 1]: tensor t has the lines lines[t] <= i < lines[t + 1], its rows, then its columns."""
        return np.concatenate([[0], np.cumsum(self.grids.sum(axis=1))])

    @cached_property
    def line_sizes(self) -> NDArray[np.float64]:
        """float64 [lines[-1]]: the number of entries of each line; 1 for an empty one."""
        rows, columns = self.grids.T
        return np.repeat(np.maximum(np.ravel([columns, rows], "F"), 1), self.grids.ravel()).astype(np.float64)

    @cached_property
    def matrices(self) -> list[tuple[int, int, int, int, int]]:
        """(start, stop, first line, rows, columns) of each tensor that is not empty."""
        parts = zip(self.tensors, self.lines.tolist()[:-1], self.grids.tolist(), strict=True)
        return [(t.start, t.stop, line, *grid) for t, line, grid in parts if t.stop > t.start]

    @cached_property
    def digest(self) -> bytes:
        """16 bytes: the head of SHA-256 over msgpack(shapes())."""
        return sha256(msgpack.packb(self.shapes())).digest()[:16]

    def shapes(self) -> list[list[object]]:
        """[[name, [dimension, ...]], ...], buffers as [name, [dimension, ...], True]; as in a Welcome."""
        return [[t.name, list(t.shape), True] if t.buffer else [t.name, list(t.shape)] for t in self.tensors]

    def counts(self, indices: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """int64 [T]: the number of the sorted `indices` in each tensor (None: all entries)."""
        if indices is None:
            return np.diff(self.bounds)
        places = np.searchsorted(indices, self.bounds)
        return places[1:] - places[:-1]
