"""Where each tensor of a model lies in the flat parameter vector theta."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named tensor: theta[start:stop], reshaped to `shape` in C order."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """The tensors of a model in order. Two ends agree on a model if their digests agree."""

    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, Iterable[int]]]) -> "Layout":
        """Lay tensors out one after the other.

        Raises ConfigError if there is no parameter at all.
        """
        tensors, start = [], 0
        for name, shape in shapes:
            dimensions = tuple(shape)
            stop = start + prod(dimensions)
            tensors.append(Tensor(name, dimensions, start, stop))
            start = stop
        if start == 0:
            raise ConfigError("the model has no parameters, so there is nothing to train")
        return cls(tuple(tensors))

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return self.tensors[-1].stop

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
    def digest(self) -> bytes:
        """16 bytes: the head of SHA-256 over msgpack([[name, [dimension, ...]], ...])."""
        return sha256(msgpack.packb(self.shapes())).digest()[:16]

    def shapes(self) -> list[list[object]]:
        """[[name, [dimension, ...]], ...], as it travels in a Welcome."""
        return [[tensor.name, list(tensor.shape)] for tensor in self.tensors]

    def counts(self, indices: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """int64 [T]: how many of the sorted `indices` fall into each tensor (None: all of it)."""
        if indices is None:
            return np.diff(self.bounds)
        places = np.searchsorted(indices, self.bounds)
        return places[1:] - places[:-1]
