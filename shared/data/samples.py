"""Samples as somebody keeps them, and what of a run's description makes them what is trained on.

    raw ──► describe ──► Description (of the server's held-out data; it travels in the Welcome)
     └──► complete ─┴──► fitted ──► Dataset

`describe` and `fitted` are in fitting.py, what tables need of them in columns.py.

Pure but for what is read lazily. What does not fit is told by the row it stands in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.texts import Texts
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields, Inputs, rows

IGNORED = -100
"""The class of what has none, as torch's cross entropy takes it."""

_SHOWN = 12
"""Names of columns or classes in an error, at most."""

Text = NDArray[np.str_]


def absent(source: str) -> ConfigError:
    """What to raise where a path leads nowhere: settings are often read in another folder than their own."""
    return ConfigError(
        f"data {source!r}: there is no such file; paths count from where the command runs, {Path.cwd()}"
    )


class Lazy:
    """x of samples, each of which is read when it is asked for."""

    def __init__(
        self, read: Callable[[int], NDArray[np.float32]], where: NDArray[np.int64], shape: tuple[int, ...]
    ) -> None:
        """Sample i is read(where[i]), of this `shape`. `read` may raise ConfigError."""
        self._read = read
        self._where = where
        self.shape = len(where), *shape

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, index: Any) -> NDArray[np.float32]:
        x = np.empty((len(where := self._where[index]), *self.shape[1:]), np.float32)
        for place, number in enumerate(where):
            x[place] = self._read(int(number))
        return x


class Unread(Protocol):
    """x that is still to be read."""

    def __len__(self) -> int: ...

    def chosen(self, where: NDArray[np.int64]) -> "Unread":
        """Of these samples alone."""

    def read_as(self, shape: tuple[int, ...] | None) -> Lazy:
        """As samples of this shape; None: of their own."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """n samples: x float32 [n, ...] or several fields, y [n]: int64 classes or float32 targets."""

    x: Inputs
    y: NDArray[np.int64] | NDArray[np.float32]
    described: Description = field(default=Description(), kw_only=True)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True)
class Stored:
    """A Dataset whose x may be read lazily."""

    x: Inputs
    y: NDArray[np.int64] | NDArray[np.float32]
    described: Description = Description()

    def __len__(self) -> int:
        return len(self.y)

    def whole(self) -> Dataset:
        """With all of x in memory."""
        return Dataset(rows(self.x, slice(None)), self.y, described=self.described)


@dataclass(frozen=True, slots=True)
class Raw:
    """n samples, as they are kept."""

    source: str
    """What they are called in errors."""
    x: NDArray[np.generic] | Fields | Unread
    """[n, ...] numbers, of several fields or not; NaN where there is none."""
    y: NDArray[np.generic]
    """[n, ...] numbers, or text."""
    columns: tuple[str, ...] = ()
    """The names of the numbers of x, if they have names."""
    place: Callable[[int], str] = "sample {}".format
    """What a person finds sample i by."""
    texts: Mapping[int, Texts] = field(default_factory=dict)
    """Column -> the texts in it. There x is NaN."""
    scale: bool | None = None
    """Whether x, and y of numbers, are to be brought to mean 0 and deviation 1. None: only such y as is far
    from that."""
    numbers: bool | None = None
    """Whether y is numbers rather than classes; None: it shows."""
    missing: str = "error"
    """What becomes of samples that lack a value: one of texts.POLICIES."""
    unlabelled: int = 0
    """Samples that were left out because they have no label."""

    def __len__(self) -> int:
        return len(self.y)

    def chosen(self, where: NDArray[np.int64]) -> "Raw":
        """These samples alone, which keep their places."""
        x = rows(self.x, where) if isinstance(self.x, np.ndarray | Fields) else self.x.chosen(where)
        place, texts = self.place, {column: one.chosen(where) for column, one in self.texts.items()}
        return replace(self, x=x, y=self.y[where], place=lambda i: place(int(where[i])), texts=texts)

    @property
    def are_numbers(self) -> bool:
        """Whether y is numbers rather than classes."""
        return self.y.dtype.kind == "f" if self.numbers is None else self.numbers

    def wrong(self, why: str, sample: int | None = None) -> ConfigError:
        where = "" if sample is None else f"{self.place(sample)}: "
        return ConfigError(f"data {self.source!r}: {where}{why}")


def listed(names: Sequence[str]) -> str:
    """The first few of them."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def scaled(x: NDArray[np.generic]) -> NDArray[np.float32]:
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / np.float32(255)
        if x.ndim == 3:
            x = x[:, np.newaxis]
    return np.ascontiguousarray(x, dtype=np.float32)


def targets(y: NDArray[np.generic]) -> NDArray[np.int64] | NDArray[np.float32]:
    return y.astype(np.float32) if np.issubdtype(y.dtype, np.floating) else y.astype(np.int64)
