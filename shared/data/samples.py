"""Samples as somebody keeps them, and what of a run's description makes them what is trained on.

    raw ──► describe ──► Description (of the server's held-out data; it travels in the Welcome)
     └────────┴────────► fitted ──► Dataset

Pure but for what is read lazily. What does not fit is told by the row it stands in.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import LONGEST, MOST, Description
from edgeflock.shared.model.fields import Fields, Inputs, rows

IGNORED = -100
"""The class of what has none, as torch's cross entropy takes it."""

ABSENT = -1
"""In the place of a sample that others have."""

_SHOWN = 12
"""Names of columns or classes in an error, at most."""

_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")

Text = NDArray[np.str_]


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
    odd: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """Column -> (sample, text) of the first text where there should be a number; ABSENT if these samples are
    without it."""
    scale: bool = False
    """Whether x is to be brought to mean 0 and deviation 1."""
    numbers: bool | None = None
    """Whether y is numbers rather than classes; None: it shows."""

    def __len__(self) -> int:
        return len(self.y)

    def chosen(self, where: NDArray[np.int64]) -> "Raw":
        """These samples alone, which keep their places."""
        x = rows(self.x, where) if isinstance(self.x, np.ndarray | Fields) else self.x.chosen(where)
        place, back = self.place, {int(sample): index for index, sample in enumerate(where)}
        odd = {column: (back.get(sample, ABSENT), text) for column, (sample, text) in self.odd.items()}
        return replace(self, x=x, y=self.y[where], place=lambda i: place(int(where[i])), odd=odd)

    def wrong(self, why: str, sample: int | None = None) -> ConfigError:
        where = "" if sample is None else f"{self.place(sample)}: "
        return ConfigError(f"data {self.source!r}: {where}{why}")


def describe(raw: Raw) -> Description:
    """What others must know to read theirs as `raw` is read. Raises ConfigError."""
    if odd := sorted(raw.odd.items()):
        column, (sample, text) = odd[0]
        rest = [name for place, name in enumerate(raw.columns) if place not in raw.odd]
        others = f", or name the columns to train on: &x={','.join(rest)}" if rest else _OF_ONE_S_OWN
        raise raw.wrong(
            f"{raw.columns[column]} is {text!r:.40}, not a number; {_mend(text)}{others}",
            None if sample == ABSENT else sample,
        )
    numbers = _are_numbers(raw)
    labels: tuple[str, ...] = ()
    if raw.y.dtype.kind == "U" and not numbers:
        labels = tuple(sorted(set(raw.y.ravel().tolist())))
        if len(labels) > MOST or any(not 0 < len(one) <= LONGEST or not one.isprintable() for one in labels):
            raise raw.wrong(
                f"the label has {len(labels)} different texts, such as {labels[-1]!r:.40}; classes are "
                f"{MOST} at most, of 1 to {LONGEST} printable characters: is it the right column?"
            )
    means, spreads = _units(raw) if raw.scale else ((), ())
    return Description(raw.columns, means, spreads, labels, numbers)


def _units(raw: Raw) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(means, deviations) of the numbers of x, float32 as they travel; a constant keeps its unit."""
    assert isinstance(raw.x, np.ndarray), "only tables are scaled"
    _all_finite(raw, raw.x, tuple(range(raw.x.shape[1])))
    means = raw.x.mean(axis=0, dtype=np.float64).astype(np.float32)
    spreads = raw.x.std(axis=0, dtype=np.float64)
    # What rounding alone can make of a constant is none.
    spreads = np.where(spreads > 1e-6 * np.maximum(1e-30, np.abs(means)), spreads, 1.0).astype(np.float32)
    return tuple(means.tolist()), tuple(spreads.tolist())


def fitted(raw: Raw, described: Description | None, shape: tuple[int, ...] | None = None) -> Stored:
    """`raw` as the run trains on it. `described` and `shape`, of a sample's x, are what the run says; None:
    it says nothing, and numbers count as they are. Raises ConfigError that names the row and the remedy.
    """
    if described is None:
        described = Description(raw.columns, numbers=_are_numbers(raw))
    y = _targets(raw, described)
    if isinstance(raw.x, Fields):
        return Stored(_of_fields(raw, raw.x), y, described)
    if not isinstance(raw.x, np.ndarray):
        return Stored(raw.x.read_as(shape), y, described)
    x = _in_units(raw, raw.x, described)
    if shape is not None and x.shape[1:] != shape:
        raise raw.wrong(
            f"samples have the shape {list(x.shape[1:])}, and those of the run {list(shape)} (model.data or "
            "model.input of the server): name data of that shape"
        )
    return Stored(x, y, described)


def _are_numbers(raw: Raw) -> bool:
    return raw.y.dtype.kind == "f" if raw.numbers is None else raw.numbers


def _in_units(raw: Raw, x: NDArray[np.generic], described: Description) -> NDArray[np.float32]:
    if x.dtype.kind not in "biuf":
        raise raw.wrong(f"x is of {x.dtype}, not of numbers; store it as float32 or uint8")
    columns: tuple[int, ...] = ()
    if described.columns and raw.columns:
        columns = tuple(_column(raw, name) for name in described.columns)
        x = x[:, columns]
    if described.means and x.shape[1:] != (len(described.means),):
        raise raw.wrong(
            f"samples have the shape {list(x.shape[1:])}, and those of the run {len(described.means)} numbers"
        )
    _all_finite(raw, x, columns)
    if not described.means:
        return scaled(x)
    units = (x - np.array(described.means)) / np.array(described.spreads)
    return np.ascontiguousarray(units, np.float32)


def _of_fields(raw: Raw, x: Fields) -> Fields:
    """Images and numbers as of a lone x; whole numbers and truths stay whole, as int64."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in x.items():
        if array.dtype.kind not in "biuf":
            raise raw.wrong(f"x.{name} is of {array.dtype}, not of numbers; store it as float32 or int64")
        _all_finite(raw, array, (), f"x.{name}")
        numbers = array.dtype == np.uint8 or array.dtype.kind == "f"
        arrays[name] = scaled(array) if numbers else np.ascontiguousarray(array, np.int64)
    return Fields(arrays)


def _column(raw: Raw, name: str) -> int:
    if name not in raw.columns:
        raise raw.wrong(f"has no column {name!r}, which the run trains on; it has {_listed(raw.columns)}")
    return raw.columns.index(name)


def _all_finite(raw: Raw, x: NDArray[np.generic], columns: tuple[int, ...], name: str = "x") -> None:
    """Raises ConfigError for the first sample with NaN or infinity. `columns` are those of x in raw's."""
    if x.dtype.kind != "f" or np.isfinite(x).all():
        return
    sample, *rest = (int(index) for index in np.argwhere(~np.isfinite(x))[0])
    if not (columns and raw.columns):
        place = f"{name}{list(rest)}" if rest else name
        raise raw.wrong(f"{place} is {x[sample, *rest]}; leave the sample out, or fill it in", sample)
    column = columns[rest[0]]
    seen, text = raw.odd.get(column, (ABSENT, ""))
    if seen == sample:
        raise raw.wrong(f"{raw.columns[column]} is {text!r:.40}; {_mend(text)}, or remove the row", sample)
    other = f", as {text!r:.40} elsewhere in it" if text else ""
    raise raw.wrong(
        f"{raw.columns[column]} is empty or no finite number{other}; fill it in, or remove the row", sample
    )


_OF_ONE_S_OWN = ", or read it by a function of yours that makes numbers of it: package.module:function"
"""Where no column is of numbers: as of a text that is to be classified."""


def _mend(text: str) -> str:
    """What to do about a text that should be a number."""
    comma = _DECIMAL_COMMA.fullmatch(text)
    return "if its comma stands before decimals, say &decimal=comma" if comma else "mend it"


def _targets(raw: Raw, described: Description) -> NDArray[np.int64] | NDArray[np.float32]:
    y = raw.y
    if y.dtype.kind not in "biufU":
        raise raw.wrong(f"y is of {y.dtype}, not of numbers or text; store it as int64, float32 or str")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        sample = int(np.argwhere(~np.isfinite(y))[0][0])
        raise raw.wrong("the label is empty or no finite number; fill it in, or remove the row", sample)
    if described.labels:
        return _named(raw, y.astype(np.str_), described.labels)
    if y.dtype.kind == "U":
        sample = next(index for index, label in enumerate(y.tolist()) if not _is_number(label))
        kind = "numbers" if described.numbers else "numbers of classes"
        raise raw.wrong(
            f"the label is {str(y[sample])!r:.40}, and the run's are {kind}; mend it, or have the server's "
            "held-out data (model.data) name the classes as well",
            sample,
        )
    if described.numbers:
        return y.astype(np.float32)
    classes = y.astype(np.int64)
    wrong = (classes != y) | ((classes < 0) & (classes != IGNORED))
    if wrong.any():
        sample = int(np.argwhere(wrong)[0][0])
        raise raw.wrong(
            f"the label is {y[tuple(np.argwhere(wrong)[0])]}, and classes are 0, 1, ...; mend it, or if it "
            "is a number to predict, say targets=numbers in the server's model.data",
            sample,
        )
    return classes


def _is_number(label: object) -> bool:
    try:
        return math.isfinite(float(str(label)))
    except ValueError:
        return False


def _named(raw: Raw, y: Text, labels: tuple[str, ...]) -> NDArray[np.int64]:
    """The number of each name."""
    numbers = {label: number for number, label in enumerate(labels)}
    known, inverse = np.unique(y, return_inverse=True)
    classes = np.array([numbers.get(str(label), -1) for label in known], np.int64)[inverse].reshape(y.shape)
    if (classes < 0).any():
        where = tuple(np.argwhere(classes < 0)[0])
        raise raw.wrong(
            f"the label is {str(y[where])!r:.40}, and the run's classes are {_listed(labels)}: correct it, "
            "or add it to the server's held-out data (model.data) and begin another run",
            int(where[0]),
        )
    return classes


def _listed(names: Sequence[str]) -> str:
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
