"""Texts in samples of numbers: categories, and markers for a missing number.

A table keeps the texts of a column as indices (Texts). A stream keeps samples as float32, so a text becomes a
float that no sensor measures (`coded`). Only the run defines later which texts are categories.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import LONGEST

POLICIES = ("mean", "drop", "error")
"""The policies for a missing value: use the run's mean, drop the sample, raise an error."""

MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"})
"""Texts that mean a missing value, in lower case."""

_CODES = 2.0**127
"""Codes are -2^127 (1 + k / 2^23), k of 23 bits: floats beyond all measurements, exact in float32."""

ABSENT = -_CODES
"""The code of a missing value."""


def is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING


class Texts(NamedTuple):
    codes: NDArray[np.int32]
    """[n]: the index of each sample's text in `names`; -1: no text."""
    names: tuple[str, ...]

    @classmethod
    def from_cells(cls, count: int, texts: Iterable[tuple[int, str]]) -> "Texts":
        """Build from `count` samples; `texts` lists (sample, text). Texts longer than a name are cut."""
        codes, names = np.full(count, -1, np.int32), dict[str, int]()
        for sample, text in texts:
            codes[sample] = names.setdefault(text.strip()[: LONGEST + 1], len(names))
        return cls(codes, tuple(names))

    def select(self, indices: NDArray[np.int64]) -> "Texts":
        """Return the texts of these samples only."""
        return Texts(self.codes[indices], self.names)

    def first(self, mask: NDArray[np.bool_] | None = None) -> tuple[int, str] | None:
        """Return (sample, text) of the first text, within `mask`; None if there is none."""
        has = self.codes >= 0
        places = np.flatnonzero(has if mask is None else has & mask)
        return (int(places[0]), self.names[self.codes[places[0]]]) if places.size else None

    def used_names(self) -> list[str]:
        """The sorted texts that samples have."""
        return sorted(self.names[code] for code in np.unique(self.codes) if code >= 0)

    def category_indices(self, categories: Sequence[str]) -> NDArray[np.int64]:
        """[n]: the index of each sample's text in `categories`; -1: no text, or an unknown one."""
        places = {name: place for place, name in enumerate(categories)}
        indices = np.array([*(places.get(name, -1) for name in self.names), -1], np.int64)
        return indices[self.codes]


def encode_text(text: str) -> float:
    """The float that represents a text in a stream."""
    if is_missing(text):
        return ABSENT
    octets = text.strip()[: LONGEST + 1].encode()
    return -_CODES * (1 + (zlib.crc32(octets) % ((1 << 23) - 1) + 1) / (1 << 23))


def are_codes(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers represent texts or missing values."""
    return np.asarray((x <= ABSENT) & np.isfinite(x))


def has_codes(x: NDArray[Any]) -> NDArray[np.bool_]:
    """[n]: which samples x [n, ...] have such numbers."""
    return np.asarray(are_codes(x).reshape(len(x), -1).any(axis=1))


def places_of(x: NDArray[np.float32], categories: Sequence[str]) -> NDArray[np.int64]:
    """[n]: the index in `categories` of the text that each number of x [n] represents; -1: none."""
    codes = np.array([encode_text(name) for name in categories], np.float32)
    order = np.argsort(codes)
    found = order[np.minimum(np.searchsorted(codes, x, sorter=order), len(codes) - 1)]
    return np.where(codes[found] == x, found, -1)


def check_codes(column: str, categories: Sequence[str]) -> None:
    """Raise ConfigError if two categories have the same code."""
    seen: dict[float, str] = {}
    for name in categories:
        if (other := seen.setdefault(encode_text(name), name)) != name:
            raise ConfigError(
                f"the categories {other!r} and {name!r} of {column} have the same code in streams; rename "
                "one of them in the server's held-out data and begin another run"
            )
