"""Exact publication: a device is sent the new values of all parameters that changed since its `base`.

A difference has the parameters touched since `base` and all running statistics, as every update moves those.
If that is much of the model, the whole model is sent. Differences have new values, not changes, so that the
replica stays equal to the server's model, bit for bit.

For each parameter, the version that touched it last is stored: 4 bytes a parameter. A scan of all of them
gives the difference for any `base`. The touches of the latest versions are also kept, because a few are found
faster without a scan.
"""

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import chain
from edgeflock.shared.protocol.messages import Model

_PAYS = 4
"""A difference is sent if its values are at most a quarter of the whole model. A difference needs indices; to
encode one takes 20 to 140 ns while the engine waits. The more indices, the less they save."""

_FEW = 64
"""Up to a 64th of the model, touches are sorted. Beyond that, a scan of all parameters is faster."""

_VERSIONS = 256
"""The touches of at most this many versions are kept."""


class Exact:
    """Exact publication: tracks touches, and encodes differences or the whole model."""

    def __init__(self, layout: Layout, version: int, dense: str = "f32") -> None:
        """`dense` is the coding of whole models: f32, or f16 for half the bytes."""
        self._layout = layout
        self._statistics = np.arange(layout.parameters.size, layout.size)
        self._start = self._version = version
        self._dense = dense
        self._whole: Model | None = None
        self._latest: tuple[int, Model] | None = None
        """(base, the model sent for it) of the last request: all devices of a round request the same."""
        self._touched = np.zeros(layout.parameters.size, np.int32)
        """For each parameter, the last version that touched it, minus the start; 0: none since."""
        self._offered = chain.FIRST
        """The chain of devices that hold version 0 as it was offered."""
        self._all_touched = version
        """The last version that touched every parameter, or the start."""
        self._recent: deque[NDArray[np.int64]] = deque()
        """The touches of the latest versions, the newest last."""
        self._remembered = 0

    def add(self, touched: Index) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""
        self._version += 1
        self._whole = self._latest = None
        self._touched[touched] = self._version - self._start
        if isinstance(touched, slice):
            self._recent.clear()
            self._remembered, self._all_touched = 0, self._version
            return
        self._recent.append(touched)
        self._remembered += touched.size
        while self._remembered > self._layout.size // _FEW or len(self._recent) > _VERSIONS:
            self._remembered -= self._recent.popleft().size

    def set_overlap(self, overlap: float) -> None:
        """Has no effect: devices always get all changes."""

    def begin_again(self) -> None:
        self.add(slice(None))

    def model(
        self,
        theta: Entries,
        base: int | None,
        held: int = 0,
        device: int = 0,
        part: slice | None = None,
    ) -> Model:
        """Encode theta at the current version for a device that holds `base` (None: nothing)."""
        if part is not None:
            return self._part(theta, base, part)
        # The replica is from before the run was set to exact, unless it is the offered half-precision model.
        lossy = held != chain.FIRST and (base, held) != (0, self._offered)
        if base is None or lossy or not self._all_touched <= base <= self._version:
            return self._entire(theta)
        if self._latest is None or self._latest[0] != base:
            self._latest = base, self._difference(theta, base) or self._entire(theta)
        return self._latest[1]

    def offer(self, theta: NDArray[np.float32]) -> Model:
        model = replace(self._coded(theta, 0), changes=self._dense != "f32")
        self.offered(model)
        return model

    def offered(self, model: Model) -> None:
        self._offered = chain.said(chain.follow(chain.FIRST, model))

    def since_offered(self, theta: Entries) -> Model | None:
        model = self.model(theta, 0, self._offered)
        return None if model.base is None else model

    def close(self) -> None:
        """Nothing to close."""

    def _difference(self, theta: Entries, base: int) -> Model | None:
        """Encode the difference since `base`; None if the whole model is hardly longer."""
        changed = self._changed_since(base)
        if base < self._version and self._statistics.size:
            changed = np.concatenate((changed, self._statistics))
        if not changed.size:
            return _unchanged(self._version, base)
        whole = values.CODINGS[self._dense].size(theta.size, len(self._layout.tensors))
        if _PAYS * 4 * changed.size > whole:
            return None
        return self._selected(theta, changed, base, sparse.GOLOMB, "f32")

    def _part(self, theta: Entries, base: int | None, part: slice) -> Model:
        """Encode the parameters of `part`, or those of them that changed since `base`."""
        where, width = np.arange(part.start, part.stop), values.CODINGS[self._dense].size(1, 0)
        if base is not None and self._all_touched <= base <= self._version:
            changed = part.start + np.flatnonzero(self._touched[part] > base - self._start)
            if not changed.size:
                return _unchanged(self._version, base)
            if _PAYS * 4 * changed.size <= width * where.size:
                return self._selected(theta, changed, base, sparse.GOLOMB, "f32")
        return self._selected(theta, where, None, sparse.RUNS, self._dense)

    def _selected(
        self, theta: Entries, where: NDArray[np.int64], base: int | None, mode: int, coding: str
    ) -> Model:
        """Encode theta at `where`, for a device that holds `base`."""
        octets = values.encode(theta[where], self._layout.counts(where), coding)
        indices = sparse.encode(where, self._layout.size, mode)
        value_mode = values.CODINGS[coding].mode
        return Model(self._version, base, mode, value_mode, where.size, indices, octets)

    def _changed_since(self, base: int) -> NDArray[np.int64]:
        """Return the parameters that were touched since `base`, in order."""
        behind = self._version - base
        if behind > len(self._recent):
            return np.flatnonzero(self._touched > base - self._start)
        recent = [self._recent[-i] for i in range(behind, 0, -1)]
        if len(recent) < 2:
            return recent[0] if recent else np.zeros(0, np.int64)
        together = np.concatenate(recent)
        together.sort()
        new = np.ones(together.size, np.bool_)
        np.not_equal(together[1:], together[:-1], out=new[1:])
        return together[new]

    def _entire(self, theta: Entries) -> Model:
        """Return the whole model, encoded only once a version."""
        if self._whole is None:
            self._whole = self._coded(theta[:], self._version)
        return self._whole

    def _coded(self, theta: NDArray[np.float32], version: int) -> Model:
        octets = values.encode(theta, self._layout.counts(None), self._dense)
        return Model(version, None, sparse.DENSE, values.CODINGS[self._dense].mode, theta.size, b"", octets)


def _unchanged(version: int, base: int) -> Model:
    """Return an empty difference of changes. It is shorter than an empty difference of new values."""
    return Model(version, base, sparse.GRID, values.CODINGS["scale"].mode, 0, b"", b"", changes=True)
