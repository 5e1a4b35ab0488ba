"""Text where a sample has numbers: categories, and what stands for a number that is missing.

A table keeps the texts of a column by their numbers (Texts). A stream keeps samples as float32, so a text
becomes a float that no sensor reads (`coded`): which texts are categories, only the run says, later.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import LONGEST

POLICIES = ("mean", "drop", "error")
"""What a sample that lacks a value comes to: the value counts as the run's mean, it is left out, an error."""

MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"})
"""Texts that say that there is no value, in small letters."""

_CODES = 2.0**127
"""Codes are -2^127 (1 + k / 2^23), k of 23 bits: floats beyond whatever is measured, exact in float32."""

ABSENT = -_CODES
"""The code of a value that is missing."""


def is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING


class Texts(NamedTuple):
    """The texts in a column."""

    codes: NDArray[np.int32]
    """[n]: for each sample the place of its text in `names`; -1: it has none."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, count: int, texts: Iterable[tuple[int, str]]) -> "Texts":
        """Of `count` samples those that `texts` names have some. What is longer than names may be is cut."""
        codes, names = np.full(count, -1, np.int32), dict[str, int]()
        for sample, text in texts:
            codes[sample] = names.setdefault(text.strip()[: LONGEST + 1], len(names))
        return cls(codes, tuple(names))

    def chosen(self, where: NDArray[np.int64]) -> "Texts":
        """Of these samples alone."""
        return Texts(self.codes[where], self.names)

    def first(self, among: NDArray[np.bool_] | None = None) -> tuple[int, str] | None:
        """(sample, text) of the first one, `among` these samples; None if there is none."""
        has = self.codes >= 0
        places = np.flatnonzero(has if among is None else has & among)
        return (int(places[0]), self.names[self.codes[places[0]]]) if places.size else None

    def there(self) -> list[str]:
        """Those that a sample has, sorted."""
        return sorted(self.names[code] for code in np.unique(self.codes) if code >= 0)

    def within(self, categories: Sequence[str]) -> NDArray[np.int64]:
        """[n]: the place of each sample's text in `categories`; -1: it has none, or one that is unknown."""
        places = {name: place for place, name in enumerate(categories)}
        known = np.array([*(places.get(name, -1) for name in self.names), -1], np.int64)
        return known[self.codes]


def coded(text: str) -> float:
    """The float that stands for a text in a stream."""
    if is_missing(text):
        return ABSENT
    octets = text.strip()[: LONGEST + 1].encode()
    return -_CODES * (1 + (zlib.crc32(octets) % ((1 << 23) - 1) + 1) / (1 << 23))


def are_codes(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the numbers stand for texts, or for nothing."""
    return np.asarray((x <= ABSENT) & np.isfinite(x))


def with_codes(x: NDArray[Any]) -> NDArray[np.bool_]:
    """[n]: which samples x [n, ...] have some."""
    return np.asarray(are_codes(x).reshape(len(x), -1).any(axis=1))


def places_of(x: NDArray[np.float32], categories: Sequence[str]) -> NDArray[np.int64]:
    """[n]: the place in `categories` of what each of the numbers x [n] stands for; -1: none of them."""
    codes = np.array([coded(name) for name in categories], np.float32)
    order = np.argsort(codes)
    found = order[np.minimum(np.searchsorted(codes, x, sorter=order), len(codes) - 1)]
    return np.where(codes[found] == x, found, -1)


def check_codes(column: str, categories: Sequence[str]) -> None:
    """Raises ConfigError if two of them have one code."""
    seen: dict[float, str] = {}
    for name in categories:
        if (other := seen.setdefault(coded(name), name)) != name:
            raise ConfigError(
                f"the categories {other!r} and {name!r} of {column} have the same code in streams; rename "
                "one of them in the server's held-out data and begin another run"
            )
