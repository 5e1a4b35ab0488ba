"""Features of the recent past, for streams whose order carries information.

For some streams the past says more than the current record. Both kinds of features use only the past: a
sample never sees its own label, nor later data.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError

CLIP = 5.0
"""The largest distance of a feature from its recent mean, in deviations; larger ones are clipped."""

_ROWS = 256
"""Samples per step, which bounds the memory of a window."""


class LaggedFeatures:
    """Appends features to the features x_t of each sample, in the order of the samples.

    window = K     the distance of each feature from its mean over the K samples before, in deviations:
                   (x_t - m) / s with m, s the mean and standard deviation of x_{t-K} .. x_{t-1}; 0 where a
                   feature did not vary. Before there are K, copies of the first sample stand in.
    lags = L       the labels y_{t-1}, ..., y_{t-L}, newest first: as numbers, or with classes = C > 2
                   as one-hot vectors of length C. Zeros where there is none yet.

    The split of the samples into chunks makes no difference.
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
        """The number of features of a sample that had `features`."""
        return features * (2 if self._window else 1) + self._labels.size

    def extend(self, data: Dataset) -> Dataset:
        """Extend x [n, d] to x [n, width(d)]. Raises ConfigError if samples or labels have another shape."""
        if data.x.ndim != 2 or data.y.ndim != 1:
            raise ConfigError(
                "window= and lags= take samples that are lists of features, each with one label; these have "
                f"the shapes {list(data.x.shape[1:])} and {list(data.y.shape[1:])}"
            )
        if len(data) == 0:
            return Dataset(np.zeros((0, self.width(data.x.shape[1])), np.float32), data.y)
        parts = [data.x]
        if self._window:
            parts.append(self._deviations(data.x))
        if self._lags:
            parts.append(self._previous_labels(data.y))
        return Dataset(np.concatenate(parts, axis=1), data.y)

    def _deviations(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        window = self._window
        past = np.repeat(x[:1], window, axis=0) if self._samples is None else self._samples
        joined = np.concatenate((past, x))
        self._samples = joined[-window:].copy()
        return np.concatenate(
            [
                _deviations_from_mean(joined[row : row + window + _ROWS], window)
                for row in range(0, len(x), _ROWS)
            ]
        )

    def _previous_labels(self, y: NDArray[np.generic]) -> NDArray[np.float32]:
        joined = np.concatenate((self._labels, self._encode_labels(y)))
        self._labels = joined[-self._lags :].copy()
        return np.concatenate([joined[-lag - len(y) : -lag] for lag in range(1, self._lags + 1)], axis=1)

    def _encode_labels(self, y: NDArray[np.generic]) -> NDArray[np.float32]:
        if self._classes:
            return np.asarray(y[:, np.newaxis] == np.arange(self._classes), np.float32)
        return y[:, np.newaxis].astype(np.float32)


def _deviations_from_mean(joined: NDArray[np.float32], window: int) -> NDArray[np.float32]:
    """The place of each row of `joined` from the `window`-th on among the `window` rows before it."""
    previous = sliding_window_view(joined.astype(np.float64), window, axis=0)[:-1]
    mean: NDArray[np.float64] = previous.mean(axis=-1)
    deviation: NDArray[np.float64] = previous.std(axis=-1)
    # Equal numbers have a tiny deviation once their mean is rounded.
    varied = deviation > 1e-6 * np.abs(mean)
    deviations = np.where(varied, joined[window:] - mean, 0) / np.where(varied, deviation, 1)
    return np.asarray(np.clip(deviations, -CLIP, CLIP), np.float32)
