"""What a device that holds version `base` must be told to hold the current one.

The parameters touched since `base`, and all running statistics, which every update moves, with their new
values, unless they are much of the model. New values rather than changes, so that the device's copy stays
equal to the server's, bit for bit.

When each parameter was touched last is all that need be known for it, however long ago `base` was: 4 bytes a
parameter, and a look at all of them. Of the latest versions the touches are kept as well: a few are found
faster by themselves.
"""

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Where
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import chain
from edgeflock.shared.protocol.messages import Model

_PAYS = 4
"""A difference is sent if its values are at most a quarter of the whole model. To encode indices, which the
whole model does without, takes 20 to 140 ns each while the engine waits; the more, the less they save."""

_FEW = 64
"""Up to a 64th of the model touches are sorted; beyond it a look at every parameter is faster."""

_VERSIONS = 256
"""Nor are those of more versions gathered one by one."""


class Exact:
    """The touches of the latest versions, and the model as a device needs it."""

    def __init__(self, layout: Layout, version: int, dense: str = "f32") -> None:
        """`dense` is the coding of whole models: f32, or f16 for half the bytes."""
        self._layout = layout
        self._statistics = np.arange(layout.parameters.size, layout.size)
        self._start = self._version = version
        self._dense = dense
        self._whole: Model | None = None
        self._latest: tuple[int, Model] | None = None
        """(base, what was sent for it), of the last one: all devices of a round ask for the same."""
        self._touched = np.zeros(layout.parameters.size, np.int32)
        """Version - start, of the last one that touched each parameter; 0: none since."""
        self._offered = chain.FIRST
        """What devices say that hold version 0 as it was offered."""
        self._all_touched = version
        """The last version that touched every parameter, or the first."""
        self._recent: deque[NDArray[np.int64]] = deque()
        """The touches of the latest versions, the newest last."""
        self._remembered = 0

    def add(self, touched: Where) -> None:
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
        """Devices get all of what others do in any case."""

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
        """theta at the current version, for a device that holds `base` (None: nothing)."""
        if part is not None:
            return self._part(theta, base, part)
        # From before the run was set to send exactly, unless it is a first model of half precision.
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
        """It holds nothing that lasts."""

    def _difference(self, theta: Entries, base: int) -> Model | None:
        """None if the whole model is hardly longer."""
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
        """The parameters of `part`, or what has changed of them since `base`."""
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
        """What theta is there, for a device that holds `base`."""
        octets = values.encode(theta[where], self._layout.counts(where), coding)
        indices = sparse.encode(where, self._layout.size, mode)
        value_mode = values.CODINGS[coding].mode
        return Model(self._version, base, mode, value_mode, where.size, indices, octets)

    def _changed_since(self, base: int) -> NDArray[np.int64]:
        """The parameters that were touched since, in order."""
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
        """The whole model, encoded once a version however many devices ask."""
        if self._whole is None:
            self._whole = self._coded(theta[:], self._version)
        return self._whole

    def _coded(self, theta: NDArray[np.float32], version: int) -> Model:
        octets = values.encode(theta, self._layout.counts(None), self._dense)
        return Model(version, None, sparse.DENSE, values.CODINGS[self._dense].mode, theta.size, b"", octets)


def _unchanged(version: int, base: int) -> Model:
    """Nothing to add, which is shorter than no new values."""
    return Model(version, base, sparse.GRID, values.CODINGS["scale"].mode, 0, b"", b"", changes=True)
