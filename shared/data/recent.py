"""Features of the recent past, for streams whose order carries meaning.

A stream's best features often are not in its records: what came before says more. Both kinds look strictly
back: a sample never sees its own label, nor anything after it.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError

FAR = 5.0
"""No feature lies further from its recent mean than so many deviations: what is beyond is cut off."""

_ROWS = 256
"""Samples at a time, which bounds the memory that a window takes."""


class LaggedFeatures:
    """Appends to the features x_t of each sample, in the order in which the samples come,

    window = K     how far each feature stands from its mean over the K samples before, in their deviations:
                   (x_t - m) / s with m, s the mean and standard deviation of x_{t-K} .. x_{t-1}; 0 where a
                   feature did not vary. Before there are K, the first sample stands for the missing.
    lags = L       the labels y_{t-1}, ..., y_{t-L}, the newest first: as numbers, or with classes = C > 2
                   each as a one among C - 1 zeros. Zeros where there is none yet.

    How the samples were split into chunks makes no difference.
    """

    def __init__(self, window: int = 0, lags: int = 0, classes: int = 0) -> None:
        self._window = window
        self._lags = lags
        self._classes = classes if classes > 2 else 0
        self._samples: NDArray[np.float32] | None = None
        """The last `window` samples."""
        self._labels = np.zeros((lags, self._classes or 1), np.float32)
        """The last `lags` labels."""

    def width(self, features: int) -> int:
        """How many features a sample of `features` then has."""
        return features * (2 if self._window else 1) + self._labels.size

    def extend(self, data: Dataset) -> Dataset:
        """x [n, d] -> x [n, width(d)]. Raises ConfigError if samples or labels have another shape."""
        if data.x.ndim != 2 or data.y.ndim != 1:
            raise ConfigError(
                "window= and lags= take samples that are lists of features, each with one label; these have "
                f"the shapes {list(data.x.shape[1:])} and {list(data.y.shape[1:])}"
            )
        if len(data) == 0:
            return Dataset(np.zeros((0, self.width(data.x.shape[1])), np.float32), data.y)
        parts = [data.x]
        if self._window:
            parts.append(self._standing(data.x))
        if self._lags:
            parts.append(self._lagged(data.y))
        return Dataset(np.concatenate(parts, axis=1), data.y)

    def _standing(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        window = self._window
        past = np.repeat(x[:1], window, axis=0) if self._samples is None else self._samples
        joined = np.concatenate((past, x))
        self._samples = joined[-window:].copy()
        return np.concatenate(
            [_standing(joined[row : row + window + _ROWS], window) for row in range(0, len(x), _ROWS)]
        )

    def _lagged(self, y: NDArray[np.generic]) -> NDArray[np.float32]:
        joined = np.concatenate((self._labels, self._coded(y)))
        self._labels = joined[-self._lags :].copy()
        return np.concatenate([joined[-lag - len(y) : -lag] for lag in range(1, self._lags + 1)], axis=1)

    def _coded(self, y: NDArray[np.generic]) -> NDArray[np.float32]:
        if self._classes:
            return np.asarray(y[:, np.newaxis] == np.arange(self._classes), np.float32)
        return y[:, np.newaxis].astype(np.float32)


def _standing(joined: NDArray[np.float32], window: int) -> NDArray[np.float32]:
    """For each row of `joined` from the `window`-th on, where it stands among the `window` rows before."""
    before = sliding_window_view(joined.astype(np.float64), window, axis=0)[:-1]
    mean: NDArray[np.float64] = before.mean(axis=-1)
    deviation: NDArray[np.float64] = before.std(axis=-1)
    # Equal numbers have a tiny deviation once their mean is rounded.
    varied = deviation > 1e-6 * np.abs(mean)
    standing = np.where(varied, joined[window:] - mean, 0) / np.where(varied, deviation, 1)
    return np.asarray(np.clip(standing, -FAR, FAR), np.float32)
