"""Which classes a model has. Nothing says so: samples of classes beyond those met so far are tried first."""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, rows


class Classes:
    """How far `backend` is known to train: classes go from 0 on, so that one number says it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._highest = -1
        """The highest class that it took, and"""
        self._refused = math.inf
        """the lowest that it did not."""

    def has(self, y: NDArray[np.integer]) -> None:
        """Say that the backend trains on classes y."""
        self._highest = max(self._highest, int(y.max(initial=-1)))

    def refused(self, x: Inputs, y: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which samples of x [n, ...] and y [n, ...] are of a class that the model does not have.

        Raises ConfigError, as the backend does, if it took none yet and takes x not even with class 0, which
        every model has: model and data do not fit.
        """
        highest = y.reshape(len(y), -1).max(axis=1)
        failed: ConfigError | None = None
        while (unsure := np.flatnonzero((highest > self._highest) & (highest < self._refused))).size:
            # All are fine mostly, so the highest goes first; then halfway, lest a flood be tried one by one.
            ranked = unsure[np.argsort(highest[unsure])]
            tried = ranked[-1 if failed is None else ranked.size // 2]
            try:
                self._try(rows(x, [tried, tried]), y[[tried, tried]])
                self._highest = int(highest[tried])
            except ConfigError as error:
                failed, self._refused = error, int(highest[tried])
        if failed is not None and self._highest < 0:
            lowest, self._refused = self._refused, math.inf
            self._try(rows(x, [tried, tried]), np.zeros_like(y[[tried, tried]]))
            self._highest, self._refused = 0, lowest
        return np.asarray(highest >= self._refused)

    def _try(self, x: Inputs, y: NDArray[np.integer]) -> None:
        """Twice the same, since BatchNorm takes no single sample."""
        self._backend.gradient(np.zeros(self._backend.layout.size, np.float32), x, y)
