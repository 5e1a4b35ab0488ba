"""Data in memory as a data set, and dealing them out among devices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset, targets, to_float32
from edgeflock.shared.errors import ConfigError

Data = Dataset | Sequence[Any]
"""Samples: (x, y), arrays or array-likes, x [n, ...] and y [n] or [n, ...]; or a part from `deal`."""


def dataset(data: Data, name: str = "data") -> Dataset:
    """Convert data as stored data are read: uint8 images to 0..1, y to int64 classes or float32 targets.

    Raises ConfigError, whose message calls the data `name`.
    """
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, Sequence) or isinstance(data, str | bytes) or len(data) != 2:
        raise ConfigError(f"{name} is a {type(data).__name__}; give (x, y), two arrays")
    try:
        x, y = (np.asarray(one) for one in data)
        if x.ndim < 1 or len(x) != len(y) or not len(x):
            shapes = f"x has the shape {list(x.shape)} and y {list(y.shape)}"
            raise ConfigError(f"{name}: {shapes}; give as many of one as of the other, and one at least")
        return Dataset(to_float32(x), targets(y))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{name} holds no numbers: {error}; give (x, y), two arrays") from error


def deal(x: Any, y: Any, shares: int) -> list[Dataset]:
    """Deal (x, y) in `shares` equal random parts. Part i equals ?part=i+1/shares of the same stored data.

    >>> [len(part) for part in deal([[0.0], [1.0], [2.0], [3.0], [4.0]], [0, 1, 0, 1, 0], 2)]
    [3, 2]

    Raises ConfigError if there are fewer samples than parts.
    """
    data = dataset((x, y), "deal")
    if not 1 <= shares <= len(data):
        raise ConfigError(f"deal: shares = {shares}, of {len(data)} samples; there may be 1 to {len(data)}")
    return datasets.deal(data, shares)
