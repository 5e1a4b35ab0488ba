"""What a device that holds version `base` must be told to hold the current one.

The union of the parameters touched since `base`, and all running statistics, which every update moves, with
their new values: for small fleets a fraction of the whole model. New values rather than changes, so that the
device's copy stays equal to the server's, bit for bit.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Where
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Model

_WORTHWHILE = 8
"""Remember touches up to an eighth of the model: beyond it a difference saves little and costs time."""


class Differences:
    """The touches of the latest versions, and the model as a device needs it."""

    def __init__(self, layout: Layout, version: int, dense: str = "f32") -> None:
        """`dense` is the coding of whole models: f32, or f16 for half the bytes."""
        self._layout = layout
        self._statistics = np.arange(layout.parameters.size, layout.size)
        self._version = version
        self._dense = dense
        self._whole: Model | None = None
        self._latest: Model | None = None
        """The difference that was asked for last: all devices of a round ask for the same."""
        self._touches: deque[NDArray[np.int64]] = deque()
        self._remembered = 0

    def add(self, touched: Where) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""
        self._version += 1
        self._whole = self._latest = None
        if isinstance(touched, slice):
            self._touches.clear()
            self._remembered = 0
            return
        self._touches.append(touched)
        self._remembered += touched.size
        while self._remembered > self._layout.size // _WORTHWHILE:
            self._remembered -= self._touches.popleft().size

    def model(self, theta: NDArray[np.float32], base: int | None) -> Model:
        """theta at the current version, for a device that holds `base` (None: nothing)."""
        if base is None or not 0 <= self._version - base <= len(self._touches):
            return self._entire(theta)
        if self._latest is None or self._latest.base != base:
            self._latest = self._difference(theta, base)
        return self._latest

    def _difference(self, theta: NDArray[np.float32], base: int) -> Model:
        behind = self._version - base
        changed = self._union([self._touches[-i] for i in range(behind, 0, -1)])
        if behind and self._statistics.size:
            changed = np.concatenate((changed, self._statistics))
        return Model(
            self._version,
            base,
            sparse.GOLOMB,
            values.CODINGS["f32"].mode,
            changed.size,
            sparse.encode(changed, self._layout.size),
            theta[changed].astype("<f4").tobytes(),
        )

    def _union(self, recent: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        """The parameters in any of these, in order."""
        if len(recent) < 2:
            return recent[0] if recent else np.zeros(0, np.int64)
        together = np.concatenate(recent)
        if 64 * together.size > self._layout.size:  # then a mark for every parameter is cheaper than a sort
            marks = np.zeros(self._layout.size, np.bool_)
            marks[together] = True
            return np.flatnonzero(marks)
        together.sort()
        return together[np.diff(together, prepend=-1) > 0]

    def _entire(self, theta: NDArray[np.float32]) -> Model:
        """The whole model, encoded once a version however many devices ask."""
        if self._whole is None:
            octets = values.encode(theta, self._layout.counts(None), self._dense)
            mode = values.CODINGS[self._dense].mode
            self._whole = Model(self._version, None, sparse.DENSE, mode, theta.size, b"", octets)
        return self._whole
