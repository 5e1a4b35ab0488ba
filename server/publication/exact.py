"""Exact publication: a device is sent the new values of all parameters that changed since its `base`.

A difference has the parameters touched since `base` and all running statistics, as every update moves those.
If that is much of the model, the whole model is sent. Differences have new values, not changes, so that the
replica stays equal to the server's model, bit for bit.

For each parameter, the version that touched it last is stored: 4 bytes a parameter. A scan of all of them
gives the difference for any `base`. The touches of the latest versions are also kept, because a few are found
faster without a scan.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import chain
from edgeflock.shared.protocol.messages import Model

_MIN_RATIO = 4
"""A difference is sent if its values are at most a quarter of the whole model. A difference needs indices; to
encode one takes 20 to 140 ns while the engine waits. The more indices, the less they save."""

_F32 = values.CODINGS["f32"].mode

_SORT_SHARE = 64
"""Up to a 64th of the model, touches are sorted. Beyond that, a scan of all parameters is faster."""

_MAX_VERSIONS = 256
"""The touches of at most this many versions are kept."""


class Exact:
    """Exact publication: tracks touches, and encodes differences or the whole model."""

    def __init__(self, layout: Layout, version: int) -> None:
        self._layout = layout
        self._statistics = np.arange(layout.parameters.size, layout.size)
        self._start = self._version = version
        self._whole: Model | None = None
        self._latest: tuple[int, Model] | None = None
        """(base, the model sent for it) of the last request: all devices of a round request the same."""
        self._last_touch = np.zeros(layout.parameters.size, np.int32)
        """For each parameter, the last version that touched it, minus the start; 0: none since."""
        self._last_full_touch = version
        """The last version that touched every parameter, or the start."""
        self._recent: deque[NDArray[np.int64]] = deque()
        """The touches of the latest versions, the newest last."""
        self._recent_size = 0

    def add(self, indices: Index) -> None:
        """The next version was made by an update that changed the parameters at `indices`."""
        self._version += 1
        self._whole = self._latest = None
        self._last_touch[indices] = self._version - self._start
        if isinstance(indices, slice):
            self._recent.clear()
            self._recent_size, self._last_full_touch = 0, self._version
            return
        self._recent.append(indices)
        self._recent_size += indices.size
        while self._recent_size > self._layout.size // _SORT_SHARE or len(self._recent) > _MAX_VERSIONS:
            self._recent_size -= self._recent.popleft().size

    def set_overlap(self, overlap: float) -> None:
        """Has no effect: devices always get all changes."""

    def reset(self) -> None:
        self.add(slice(None))

    def model(
        self, theta: Entries, base: int | None, chain_id: int = 0, device: int = 0, part: slice | None = None
    ) -> Model:
        """Encode theta at the current version for a device that holds `base` (None: nothing)."""
        if part is not None:
            return self._encode_part(theta, base, part)
        lossy = chain_id != chain.FIRST  # the replica is from before the run was set to exact
        if base is None or lossy or not self._last_full_touch <= base <= self._version:
            return self._whole_model(theta)
        if self._latest is None or self._latest[0] != base:
            self._latest = base, self._difference(theta, base) or self._whole_model(theta)
        return self._latest[1]

    def offer(self, theta: NDArray[np.float32]) -> Model:
        return self._encode(theta, 0)

    def restore_offer(self, model: Model) -> None:
        """Has no effect: the offered model is version 0 itself."""

    def changes_since_offer(self, theta: Entries) -> Model | None:
        model = self.model(theta, 0)
        return None if model.base is None else model

    def close(self) -> None:
        """Nothing to close."""

    def _difference(self, theta: Entries, base: int) -> Model | None:
        """Encode the difference since `base`; None if the whole model is hardly longer."""
        changed = self._find_changed(base)
        if base < self._version and self._statistics.size:
            changed = np.concatenate((changed, self._statistics))
        if not changed.size:
            return _empty_difference(self._version, base)
        if _MIN_RATIO * changed.size > theta.size:
            return None
        return self._encode_entries(theta, changed, base, sparse.GOLOMB)

    def _encode_part(self, theta: Entries, base: int | None, part: slice) -> Model:
        """Encode the parameters of `part`, or those of them that changed since `base`."""
        indices = np.arange(part.start, part.stop)
        if base is not None and self._last_full_touch <= base <= self._version:
            changed = part.start + np.flatnonzero(self._last_touch[part] > base - self._start)
            if not changed.size:
                return _empty_difference(self._version, base)
            if _MIN_RATIO * changed.size <= indices.size:
                return self._encode_entries(theta, changed, base, sparse.GOLOMB)
        return self._encode_entries(theta, indices, None, sparse.RUNS)

    def _encode_entries(
        self, theta: Entries, indices: NDArray[np.int64], base: int | None, mode: int
    ) -> Model:
        """Encode theta at `indices`, for a device that holds `base`."""
        places = sparse.encode(indices, self._layout.size, mode)
        octets = theta[indices].astype("<f4").tobytes()
        return Model(self._version, base, mode, _F32, indices.size, places, octets)

    def _find_changed(self, base: int) -> NDArray[np.int64]:
        """Return the parameters that were touched since `base`, in order."""
        count = self._version - base
        if count > len(self._recent):
            return np.flatnonzero(self._last_touch > base - self._start)
        recent = [self._recent[-i] for i in range(count, 0, -1)]
        if len(recent) < 2:
            return recent[0] if recent else np.zeros(0, np.int64)
        together = np.concatenate(recent)
        together.sort()
        new = np.ones(together.size, np.bool_)
        np.not_equal(together[1:], together[:-1], out=new[1:])
        return together[new]

    def _whole_model(self, theta: Entries) -> Model:
        """Return the whole model, encoded only once a version."""
        if self._whole is None:
            self._whole = self._encode(theta[:], self._version)
        return self._whole

    def _encode(self, theta: NDArray[np.float32], version: int) -> Model:
        return Model(version, None, sparse.DENSE, _F32, theta.size, b"", theta.astype("<f4").tobytes())


def _empty_difference(version: int, base: int) -> Model:
    """Return an empty difference of changes. It is shorter than an empty difference of new values."""
    return Model(version, base, sparse.GRID, values.CODINGS["scale"].mode, 0, b"", b"", changes=True)
