"""Samples in their stored form, and their conversion to a run's data with its description.

    raw ──► describe ──► Description (of the server's held-out data; it travels in the Welcome)
     └──► complete ─┴──► fitted ──► Dataset

fitting.py has `describe` and `fitted`; columns.py has their parts for tables. The code is pure, except for
lazy reads. Errors about a sample name its row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.texts import Texts
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields, Inputs, rows

IGNORED = -100
"""The class of entries without a class, as in torch's cross entropy."""

_SHOWN = 12
"""The most names of columns or classes in an error."""

Text = NDArray[np.str_]


def missing_file(source: str) -> ConfigError:
    """Return the error for a missing path: settings are often used in another folder than their own."""
    return ConfigError(
        f"data {source!r}: there is no such file; paths are relative to the command's folder, {Path.cwd()}"
    )


class Lazy:
    """x of samples that are read on demand."""

    def __init__(
        self, read: Callable[[int], NDArray[np.float32]], indices: NDArray[np.int64], shape: tuple[int, ...]
    ) -> None:
        """Sample i is read(where[i]), of this `shape`. `read` may raise ConfigError."""
        self._read = read
        self._indices = indices
        self.shape = len(indices), *shape

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        x = np.empty((len(indices := self._indices[index]), *self.shape[1:]), np.float32)
        for place, number in enumerate(indices):
            x[place] = self._read(int(number))
        return x


Shape = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Unread:
    """x that has not been read yet."""

    indices: NDArray[np.int64]
    open: Callable[[int, Shape], tuple[Callable[[int], NDArray[np.float32]], tuple[int, ...]]]
    """(the first index, the shape of samples or None for their own) -> (reader of one sample, its shape)."""

    def __len__(self) -> int:
        return len(self.indices)

    def select(self, indices: NDArray[np.int64]) -> "Unread":
        """Return x of these samples only."""
        return replace(self, indices=self.indices[indices])

    def read_as(self, shape: Shape) -> Lazy:
        """Return samples of this shape. Raises ConfigError if they cannot have it."""
        read, found = self.open(int(self.indices[0]), shape)
        return Lazy(read, self.indices, found)


@dataclass(frozen=True, slots=True)
class Dataset:
    """n samples: x float32 [n, ...] or several fields, y [n]: int64 classes or float32 targets.

    x may be read lazily.
    """

    x: Inputs
    y: NDArray[np.int64] | NDArray[np.float32]
    description: Description = field(default=Description(), kw_only=True)

    def __len__(self) -> int:
        return len(self.y)

    def load(self) -> "Dataset":
        """Read all of x into memory."""
        return self.subset(slice(None))

    def subset(self, indices: NDArray[np.int64] | slice) -> "Dataset":
        """Return these samples only, in memory."""
        return Dataset(rows(self.x, indices), self.y[indices], description=self.description)


@dataclass(frozen=True, slots=True)
class Raw:
    """n samples in their stored form."""

    source: str
    """The name of the samples in errors."""
    x: NDArray[np.generic] | Fields | Unread
    """[n, ...] numbers, with one or several fields; NaN where there is none."""
    y: NDArray[np.generic]
    """[n, ...] numbers, or text."""
    columns: tuple[str, ...] = ()
    """The names of the numbers of x, if they have names."""
    place: Callable[[int], str] = "sample {}".format
    """The place of sample i, for people."""
    texts: Mapping[int, Texts] = field(default_factory=dict)
    """Column -> its texts, where x is NaN."""
    scale: bool | None = None
    """Whether x, and numbers in y, are scaled to mean 0 and deviation 1. None: only such y as is far from
    that."""
    numbers: bool | None = None
    """Whether y is numbers rather than classes; None: its type decides."""
    missing: str = "error"
    """The policy for samples that lack a value, from texts.POLICIES."""
    unlabelled: int = 0
    """The number of samples that were left out because they have no label."""

    def __len__(self) -> int:
        return len(self.y)

    def select(self, indices: NDArray[np.int64]) -> "Raw":
        """Return these samples only; they keep their places."""
        x = rows(self.x, indices) if isinstance(self.x, np.ndarray | Fields) else self.x.select(indices)
        place, texts = self.place, {column: one.select(indices) for column, one in self.texts.items()}
        return replace(self, x=x, y=self.y[indices], place=lambda i: place(int(indices[i])), texts=texts)

    @property
    def are_numbers(self) -> bool:
        """Whether y is numbers rather than classes."""
        return self.y.dtype.kind == "f" if self.numbers is None else self.numbers

    def error(self, reason: str, sample: int | None = None) -> ConfigError:
        place = "" if sample is None else f"{self.place(sample)}: "
        return ConfigError(f"data {self.source!r}: {place}{reason}")


def join_names(names: Sequence[str]) -> str:
    """The first names, as text."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def to_float32(x: NDArray[np.generic]) -> NDArray[np.float32]:
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / np.float32(255)
        if x.ndim == 3:
            x = x[:, np.newaxis]
    return np.ascontiguousarray(x, dtype=np.float32)


def targets(y: NDArray[np.generic]) -> NDArray[np.int64] | NDArray[np.float32]:
    return y.astype(np.float32) if np.issubdtype(y.dtype, np.floating) else y.astype(np.int64)
