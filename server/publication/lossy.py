"""Lossy publication: devices are sent the largest differences to their replicas, with error feedback.

The server knows each device's replica, B_i. At a pull it sends the large entries of theta - B_i: their
indices, their signs and one magnitude a tensor. Server and device add the same floats to B_i. Entries that
are left out stay in theta - B_i, so nothing is lost, only delayed.

Each tensor has a threshold for large entries, the same for all devices. For a given number of bytes, a hard
threshold minimizes the total error of all that is sent (A. Sahu et al., "Rethinking gradient sparsification
as total error minimization", NeurIPS 2021). A device that was away gets what it missed; one that pulls often
gets little each time.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.server.publication.copies import Copies, Copy, CopyStep
from edgeflock.server.publication.kernels import select
from edgeflock.server.publication.thresholds import RARE_SHARE, Thresholds
from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import chain
from edgeflock.shared.protocol.messages import Model
from edgeflock.shared.selection import fraction_of
from edgeflock.shared.settings.traffic import DownlinkSettings

_LONG_FACTOR = 8
"""A device that lacks more than eight times the usual entries gets several magnitude levels."""

_LOWER = 0.5, 0.25, 0.125, 0.0625
"""Factors of the thresholds for a device that comes rarely, until its step holds enough."""

_STATISTICS_EVERY = 16
"""The running statistics are sent once in this many steps, because no gradient depends on them."""

_LEVELS = sparse.GOLOMB, values.CODINGS["codebook4"].mode
_SHORTEST = sparse.GRID, values.CODINGS["scale"].mode
"""The coding of an empty difference: it takes no bytes."""

_MIN_LAG = 0.3
"""The fraction of the lag that copies may have if devices have no labels in common."""

_MAX_ERROR = 1e-3
"""The largest error of a whole model in eight bits, as a part of its squared norm; else it has sixteen."""


Vector = NDArray[np.float32]
Indices = NDArray[np.int64]

_NOTHING: Vector = np.zeros(0, np.float32)
_NO_INDICES: Indices = np.zeros(0, np.int64)


class Lossy:
    """Lossy publication: tracks the replicas and sends their largest differences to theta."""

    def __init__(
        self,
        layout: Layout,
        version: int,
        copies: Copies,
        terms: DownlinkSettings,
        patience: int = 0,
        lag: int = 0,
    ) -> None:
        """Whole models may be up to `patience` versions old. A copy may lag by `lag` versions on average.

        0: only `terms.share` determines how much of the difference a step sends.
        """
        self._layout = layout
        self._patience, self._lag = patience, lag
        self._parameters = layout.parameters
        self._version = version
        self._copies = copies
        # The grid codes the signs, which scale leaves out.
        indices = "grid" if terms.values == "scale" else "golomb"
        self._modes = sparse.CODINGS[indices].mode, values.CODINGS[terms.values].mode
        self._has_means_only = values.CODINGS[terms.values].means_only
        fraction = fraction_of(terms.select, layout)
        self._thresholds = Thresholds(layout.parameters, fraction, terms.share, lag)
        room = layout.parameters.size // 2 + 1
        self._indices, self._changes = np.empty(room, np.int64), np.empty(room, np.float32)
        self._whole: tuple[Model, Vector] | None = None
        self._offer_changes: Model | None = None
        """The step from the first model to the current version. Its size decides whether devices load."""
        self._steps: dict[Copy, CopyStep] = {}
        """Steps to the current version, and long steps from copies without steps to recent versions."""
        self._counted: set[int] = set()
        """Devices that have changed the thresholds. A step from a copy without steps counts once a device.
        Otherwise one device could raise the thresholds for all by repeated requests."""

    def add(self, indices: Index) -> None:
        self._version += 1
        if self._whole is not None and not self._is_recent(self._whole[0]):
            self._whole = None
        self._offer_changes = None
        self._steps = {
            copy: sent
            for copy, sent in self._steps.items()
            if not copy.steps and sent.decoded is None and self._is_recent(sent.model)
        }

    def set_overlap(self, overlap: float) -> None:
        self._thresholds.lag = round(self._lag * max(_MIN_LAG, overlap))

    def reset(self) -> None:
        self.add(slice(None))
        self._copies.forget_all()
        self._thresholds.reset()
        self._counted.clear()

    def model(
        self, theta: Entries, base: int | None, chain_id: int = 0, device: int = 0, part: slice | None = None
    ) -> Model:
        """Encode the largest differences for a device. `part` is ignored."""
        copy = self._copies.find(device, base, chain_id) if device else None
        if copy is None or base is None:
            model, parameters = self._whole_model(theta[:])
            if device:
                self._copies.begin(device, parameters, model)
            return model
        sent = self._steps.get(copy)
        # A copy with one holder changes in place, so a step sent earlier may start from its former values.
        if sent is None or (sent.model.base, sent.old_chain) != (base, copy.chain):
            follow = copy.steps > 0 or device not in self._counted
            sent = self._step(theta[:], copy, base, follow=follow)
            if sent is None:
                self._whole = None
                return self._whole_model(theta[:])[0]
            self._steps[copy] = sent
            self._counted.add(device)
        self._copies.send(device, sent)
        return sent.model

    def offer(self, theta: Vector) -> Model:
        model, parameters = self._encode(theta, 0)
        self._copies.offer(parameters, chain.follow(chain.FIRST, model))
        return model

    def restore_offer(self, model: Model) -> None:
        replica = values.decode(model.values, self._layout.counts(None), model.value_mode)
        self._copies.offer(replica[: self._parameters.size], chain.follow(chain.FIRST, model))

    def changes_since_offer(self, theta: Entries) -> Model | None:
        if self._offer_changes is None and self._copies.first is not None:
            # A separate step, because thresholds must follow only the steps that are sent to devices.
            sent = self._step(theta[:], self._copies.first, 0, follow=False)
            self._offer_changes = None if sent is None else sent.model
        return self._offer_changes

    def close(self) -> None:
        self._copies.close()

    def _is_recent(self, model: Model) -> bool:
        """Whether a model is recent enough for a device to begin with."""
        return self._version - model.version <= self._patience

    def _step(self, theta: Vector, copy: Copy, base: int, *, follow: bool) -> CopyStep | None:
        """Return a step from `copy` towards theta. With `follow`, it updates the thresholds.

        None if theta has diverged: no difference can express that.
        """
        if base == self._version:
            return self._encode_step(theta, copy, base, _NOTHING, _NO_INDICES, long=False)
        parameters, thresholds = theta[: self._parameters.size], self._thresholds
        counts = np.zeros(thresholds.values.size, np.int64)
        bounds, indices, changes = self._parameters.bounds, self._indices, self._changes
        found, error = select(parameters, copy.values, bounds, thresholds.values, indices, changes, counts)
        if thresholds.begin(counts, parameters, copy.values):
            found, error = select(
                parameters, copy.values, bounds, thresholds.values, indices, changes, counts
            )
        rare = thresholds.is_rare(self._version - base)
        if rare:
            found = self._select_most(parameters, copy.values)
        if not math.isfinite(error) and not np.isfinite(parameters).all():
            return None
        if found > indices.size:
            sent = self._encode_step(theta, copy, base, parameters - copy.values, None, long=True)
        else:
            indices, changes = indices[:found].copy(), changes[:found].copy()
            long = rare or found > _LONG_FACTOR * thresholds.quota
            sent = self._encode_step(theta, copy, base, changes, indices, long=long)
        if follow and rare:
            thresholds.follow(self._version - base)
        elif follow and sent.decoded is not None:
            received = sent.decoded[1].astype(np.float64)  # squares may leave float32
            remaining = error - float(received @ (2 * changes - received))
            thresholds.adapt(counts, error, remaining, self._version - base, self._version)
        elif follow:
            thresholds.rise()
        return sent

    def _select_most(self, parameters: Vector, values: Vector) -> int:
        """Select the entries of `parameters` - `values` for a device that comes rarely, by lower thresholds.

        Returns their number: more than there is room for if they are over half of all, or still too few.
        """
        counts = np.zeros(self._thresholds.values.size, np.int64)
        bounds, indices, changes = self._parameters.bounds, self._indices, self._changes
        for factor in _LOWER:
            lower = self._thresholds.values * np.float32(factor)
            found, error = select(parameters, values, bounds, lower, indices, changes, counts)
            if found > indices.size:
                break
            if float(changes[:found] @ changes[:found]) >= RARE_SHARE * error:
                return int(found)
        return indices.size + 1

    def _encode_step(
        self, theta: Vector, copy: Copy, base: int, changes: Vector, indices: Indices | None, *, long: bool
    ) -> CopyStep:
        """Return the coded step that adds `changes` at `indices` (None: everywhere) to `copy`."""
        modes = (_LEVELS if long and self._has_means_only else self._modes) if changes.size else _SHORTEST
        coded = entries.encode(changes, indices, self._parameters, *modes, copy.activity)
        octets = coded.values
        if copy.steps % _STATISTICS_EVERY == _STATISTICS_EVERY - 1:
            octets += values.encode_statistics(theta[self._parameters.size :])
        model = Model(
            self._version, base, coded.index_mode, coded.value_mode, changes.size, coded.indices, octets, True
        )
        decoded = None
        if not long:
            everywhere = slice(None) if indices is None else indices
            decoded = everywhere, entries.decode_values(coded, changes, indices, self._parameters)
        return CopyStep(model, coded, copy.chain, chain.follow(copy.chain, model), decoded)

    def _whole_model(self, theta: Vector) -> tuple[Model, Vector]:
        """Return the whole model, coded once for all requests, and the parameters that a device decodes."""
        if self._whole is None:
            self._whole = self._encode(theta, self._version)
        return self._whole

    def _encode(self, theta: Vector, version: int) -> tuple[Model, Vector]:
        counts, diverged = self._layout.counts(None), not np.isfinite(theta).all()
        for coding in ("f32",) if diverged else ("int8", "f16"):
            octets, mode = values.encode(theta, counts, coding), values.CODINGS[coding].mode
            replica = values.decode(octets, counts, mode)
            if coding != "int8" or _is_accurate(theta, replica):
                break
        model = Model(version, None, sparse.DENSE, mode, theta.size, b"", octets, not diverged)
        return model, replica[: self._parameters.size]


def _is_accurate(theta: Vector, replica: Vector) -> bool:
    """Whether the coding error of theta is small."""
    with np.errstate(over="ignore"):  # another coding does not help values too large to be squared
        return bool(np.square(theta - replica).sum() <= _MAX_ERROR * np.square(theta).sum())
