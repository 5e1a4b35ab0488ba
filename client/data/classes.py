"""Finds which classes a model has, by trial: no interface states them."""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, rows


class Classes:
    """The range of classes that `backend` accepts. Classes start at 0, so one number defines it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._highest = -1
        """The highest class that the backend accepted, and"""
        self._refused = math.inf
        """the lowest that it refused."""

    def record_accepted(self, y: NDArray[np.integer]) -> None:
        """Record that the backend trains on classes y."""
        self._highest = max(self._highest, int(y.max(initial=-1)))

    def find_refused(self, x: Inputs, y: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which samples of x [n, ...] and y [n, ...] have a class that the model lacks.

        Raises the backend's ConfigError if it has accepted no class yet and refuses x with class 0 too. Every
        model has class 0, so model and data do not fit.
        """
        highest = y.reshape(len(y), -1).max(axis=1)
        failed: ConfigError | None = None
        while (unsure := np.flatnonzero((highest > self._highest) & (highest < self._refused))).size:
            # Usually all are valid, so the highest is tried first. After a failure, bisect to limit the
            # trials.
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
        """Compute one gradient. Callers pass two equal samples, since BatchNorm accepts no single sample."""
        self._backend.gradient(np.zeros(self._backend.layout.size, np.float32), x, y)
