"""Data of the tasks, from the files in the folder that EDGEFLOCK_DATA names."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset

HELD_OUT = 5_000
"""Samples to evaluate on, at most."""


@dataclass(frozen=True, slots=True)
class Data:
    """Samples to train and to evaluate on; the group of each says who holds it where data are uneven."""

    train: Dataset
    test: Dataset
    train_groups: NDArray[np.int64]
    test_groups: NDArray[np.int64]
    names: tuple[str, ...]
    """Of the groups."""
    scores_groups: bool = True
    """Whether the accuracy of a group means something."""


def folder() -> Path:
    """Where the files lie."""
    return Path(os.environ.get("EDGEFLOCK_DATA", "."))


def of_classes(uri: str) -> Data:
    """Samples of one class each, which is their group. "{folder}" in `uri` is the folder of the files."""
    train, test = (datasets.load(uri.format(folder=folder()), split) for split in ("train", "test"))
    test = Dataset(test.x[:HELD_OUT], test.y[:HELD_OUT])
    names = tuple(str(name) for name in np.unique(train.y))
    return Data(train, test, train.y.astype(np.int64), test.y.astype(np.int64), names)


def tagged_words() -> Data:
    """UD English-EWT in stretches of 20 words; the group of a stretch is the genre of its first word.

    x [n, 20, 2]: the number of the word among the 4,095 most frequent ones of the training text, 0 for all
    others; and the hash of its last three letters and its shape, of 2,048. y [n, 20]: 17 parts of speech.
    """
    length = 20
    with np.load(folder() / "pos_ud_ewt.npz") as arrays:
        vocabulary = [str(word) for word in arrays["vocab"]]
        found = np.bincount(arrays["w_train"], minlength=len(vocabulary))
        numbers = np.zeros(len(vocabulary), np.int64)
        numbers[np.argsort(-found, kind="stable")[:4095]] = np.arange(1, 4096)
        endings = np.array([_ending(word) for word in vocabulary])
        sets = []
        for split in ("train", "test"):
            words = arrays[f"w_{split}"]
            count = len(words) // length
            words = words[: count * length].reshape(count, length)
            x = np.stack((numbers[words], endings[words]), 2).astype(np.float32)
            y = arrays[f"upos_{split}"][: count * length].reshape(count, length).astype(np.int64)
            sentence = np.searchsorted(arrays[f"s_{split}"], np.arange(count) * length, side="right") - 1
            sets.append((Dataset(x, y), arrays[f"genre_{split}"][sentence].astype(np.int64)))
        (train, train_groups), (test, test_groups) = sets
        return Data(train, test, train_groups, test_groups, tuple(arrays["genre_names"].tolist()))


def spoken_by_six() -> Data:
    """Spoken digits, the group of a sample being who speaks."""
    data = of_classes("npz:{folder}/fsdd_logmel.npz")
    with np.load(folder() / "fsdd_logmel.npz") as arrays:
        train, test = (arrays[f"speaker_{split}"].astype(np.int64) for split in ("train", "test"))
    speakers = np.unique(train)
    groups = np.searchsorted(speakers, train), np.searchsorted(speakers, test)
    names = tuple(f"speaker {number}" for number in range(len(speakers)))
    return Data(data.train, data.test, *groups, names)


def _ending(word: str) -> int:
    shape = f"{word[:1].isupper()}{word.isupper()}{word.isalpha()}{word.isdigit()}"
    return crc32(f"{word.lower()[-3:]} {shape}".encode()) % 2048


def electricity() -> Data:
    """The demand of New South Wales from six columns of the electricity market: a regression.

    Columns: day of the week, half-hour of the day, the price there, price and demand in Victoria, and the
    transfer between both. Rows before Victoria's figures begin are left out. Columns and target have mean 0
    and deviation 1. A random eighth of the rows, at most 5,000, is held out. The group of a row is the tenth
    of all demands that it lies in; its accuracy means nothing.
    """
    with np.load(folder() / "elec.npz") as arrays:
        x = arrays["x"].astype(np.float64)
    begun = int(np.flatnonzero(x[:, 3] != x[0, 3])[0])
    weekday = (np.arange(len(x)) // 48 % 7).astype(np.float64)
    half_hour, price, demand, other_price, other_demand, transfer = x[begun:].T
    columns = np.stack((weekday[begun:], half_hour, price, other_price, other_demand, transfer), 1)
    order = np.random.default_rng(0).permutation(len(columns))
    held = min(HELD_OUT, len(columns) // 8)
    edges = np.quantile(demand, np.arange(1, 10) / 10)
    groups = np.searchsorted(edges, demand).astype(np.int64)

    def standardised(values: NDArray[np.float64]) -> NDArray[np.float32]:
        scaled: NDArray[np.float32] = ((values - values.mean(0)) / values.std(0)).astype(np.float32)
        return scaled

    inputs, targets = standardised(columns), standardised(demand[:, None])
    train, test = order[held:], order[:held]
    return Data(
        Dataset(inputs[train], targets[train]),
        Dataset(inputs[test], targets[test]),
        groups[train],
        groups[test],
        tuple(f"tenth {number}" for number in range(1, 11)),
        scores_groups=False,
    )


@lru_cache(maxsize=1)
def loaded(load: Callable[[], Data]) -> Data:
    """What `load` gives, once for the cells of a task."""
    return load()
