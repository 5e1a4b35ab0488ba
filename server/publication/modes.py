"""Publications by their name in `downlink.mode`, and what devices and gateways get of one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.server.publication.copies import Copies
from edgeflock.server.publication.exact import Exact
from edgeflock.server.publication.lossy import Lossy
from edgeflock.server.publication.spill import Spill
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.model.start import Weights
from edgeflock.shared.protocol.messages import Model
from edgeflock.shared.selection import fraction_of
from edgeflock.shared.settings.config import Config


class Publication(Protocol):
    """Decides what devices are sent. Not thread-safe: the engine is the only caller."""

    def add(self, indices: Index) -> None:
        """The next version was made by an update that changed the parameters at `indices`."""

    def set_overlap(self, overlap: float) -> None:
        """Set how much the labels of devices overlap, from 0 to 1: the less, the more changes each needs."""

    def reset(self) -> None:
        """The next version is another model. A device at any earlier version needs a whole model."""

    def model(
        self, theta: Entries, base: int | None, chain_id: int = 0, device: int = 0, part: slice | None = None
    ) -> Model:
        """Encode theta (float32 [P + B]) for a device that holds version `base` (None: nothing).

        `chain_id` is its chain (protocol/chain.py). With `part`, encode only these parameters, if supported.
        """

    def offer(self, theta: NDArray[np.float32]) -> Model:
        """Encode theta (float32 [P + B]) at version 0 as a whole model that devices may hold."""

    def restore_offer(self, model: Model) -> None:
        """Accept a record of version 0 that was offered before."""

    def changes_since_offer(self, theta: Entries) -> Model | None:
        """Return what is sent to a device that holds the offered model; None: it is sent all of theta."""

    def close(self) -> None:
        """Release resources. There are no requests afterwards."""


_PARAMETERS_PER_VERSION = 1 << 18
"""The most parameters a version to encode for whole models, however many requests arrive. It takes about
12 ns a parameter while the engine waits: 3 ms a version."""

_SPILL_BYTES = 1 << 34
"""The most bytes of the file for copies of replicas that do not fit in memory. It leaves room on its disk."""

_LAG = 100
"""Versions that a device's replica may lag behind the model on average, beyond its staleness, where a version
is of _BATCH samples. Versions of larger batches change the model more."""
_BATCH, _EXPONENT, _MIN_LAG = 10, 0.6, 25

_TEXT_BATCH = 32
"""Samples as which a batch counts at least if its loss is per token: a text has many predictions."""

First = NDArray[np.float32] | None
"""The model of version 0 (float32 [P + B]) if every device can make it, else None."""


def _exact(config: Config, layout: Layout, version: int, first: First, directory: Path | None) -> Publication:
    return Exact(layout, version)


def _lossy(config: Config, layout: Layout, version: int, first: First, directory: Path | None) -> Publication:
    size, limits = layout.parameters.size, config.limits
    spill = Spill(directory, size, _SPILL_BYTES)
    parameters = None if first is None else first[:size]
    copies = Copies(layout.parameters, parameters, limits.downlink_bytes // (4 * size), spill)
    downlink = config.downlink
    if _is_of_tokens(config):
        fraction = fraction_of(downlink.select, layout, _TEXT_BATCH)
        downlink = downlink.model_copy(update={"select": fraction})
    return Lossy(layout, version, copies, downlink, _patience(config, size), lag_of(config))


def lag_of(config: Config) -> int:
    """Return the versions that a replica may lag: 100 with batches of 10, 50 with 32 or texts, at least 25.

    0: there is no bound, because devices of a round begin at one version.
    """
    if config.coordination.traits.rounds:
        return 0
    batch = max(config.local.batch, _TEXT_BATCH) if _is_of_tokens(config) else config.local.batch
    part: float = min(1.0, _BATCH / batch) ** _EXPONENT
    return max(_MIN_LAG, round(_LAG * part))


def _is_of_tokens(config: Config) -> bool:
    loss = config.model.loss
    return loss in LOSSES and LOSSES[loss].per_token


def _patience(config: Config, size: int) -> int:
    """Return how many versions old a whole model of `size` parameters may be when it is sent to a device.

    The device's first update must be admitted.
    """
    window = 1 if config.coordination.traits.rounds else config.coordination.window
    return min(size // _PARAMETERS_PER_VERSION, window // 2)


MODES: dict[str, Callable[[Config, Layout, int, First, Path | None], Publication]] = {
    "exact": _exact,
    "lossy": _lossy,
}


def publication_of(
    config: Config, layout: Layout, version: int, first: First, directory: Path | None = None
) -> Publication:
    """Return the publication that `config` names, from `version` on. Copies are spilled to `directory`."""
    return MODES[config.downlink.mode](config, layout, version, first, directory)


class Changes(NamedTuple):
    """The changes of some consecutive versions."""

    counts: list[int] | None
    """How many parameters parts version touched; None: all of them."""
    indices: NDArray[np.int64]
    """The touched parameters of the first version, then of the second, and so on."""
    values: NDArray[np.float32]
    """The current theta at `indices`, then the running statistics; all of theta if `counts` is None."""
    is_reset: bool = False
    """Whether this is another model, so that replicas cannot be updated by a difference."""


class ChangeRecorder:
    """Records the parameters that versions touch, from its creation on."""

    def __init__(self, parameters: int) -> None:
        """`parameters` is P, the number of trained parameters."""
        self._parameters = parameters
        self._indices: list[NDArray[np.int64]] = []
        self._all = self._is_reset = False

    def reset(self) -> None:
        """The next version is another model."""
        self._all = self._is_reset = True

    def add(self, indices: Index) -> None:
        """The next version was made by an update that changed the parameters at `indices`."""
        if isinstance(indices, slice):
            self._all = True
        elif not self._all:
            self._indices.append(indices)

    def take(self, theta: Entries) -> Changes | None:
        """Return the recorded changes with values of theta (float32 [P + B]), and reset. None: no version."""
        parts, everything, is_reset = self._indices, self._all, self._is_reset
        self._indices, self._all, self._is_reset = [], False, False
        if everything:
            return Changes(None, np.zeros(0, np.int64), theta[:].copy(), is_reset)
        if not parts:
            return None
        indices = np.concatenate(parts)
        statistics = np.arange(self._parameters, theta.size)
        values = np.concatenate((theta[indices], theta[statistics]))
        return Changes([one.size for one in parts], indices, values)


_MAX_RATIO = 65 / 64
"""A load, which can resume after a break, may cost this much more than a whole model in one message."""


class Outlet:
    """Serves the model through a publication. Not thread-safe: the engine is the only caller."""

    def __init__(self, publication: Publication, layout: Layout, theta: Entries) -> None:
        """`publication` decides what devices are sent of `theta`. `theta` is read at each request."""
        self._publication = publication
        self._layout = layout
        self._theta = theta
        self.first_model: Weights | None = None
        """The weights of version 0 that devices may load; None: there are none."""
        self._whole_bytes = 0
        """The bytes of the offered whole model."""
        self._recorder: ChangeRecorder | None = None
        """The recorded changes; None: no gateway follows the model."""

    def model(self, base: int | None, chain_id: int = 0, device: int = 0, part: slice | None = None) -> Model:
        """Return what `device` needs of the model, or of a `part`. It holds `base` with `chain_id`."""
        return self._publication.model(self._theta, base, chain_id, device, part)

    def record_changes(self, *, enabled: bool = True) -> None:
        """Start recording changes for `changes`, or stop if not `enabled`."""
        self._recorder = ChangeRecorder(self._layout.parameters.size) if enabled else None

    def changes(self) -> Changes | None:
        """Return the changes of theta since the last call; None: nothing changed, or nothing is recorded."""
        return None if self._recorder is None else self._recorder.take(self._theta)

    def offer(self, theta: NDArray[np.float32], save: Callable[[Model], Weights]) -> None:
        """Offer `theta`, the model of version 0, for loading. `save` stores its record."""
        model = self._publication.offer(theta)
        self.first_model, self._whole_bytes = save(model), len(model.values)

    def restore_offer(self, model: Model, weights: Weights) -> None:
        """Offer a record that was stored at `first_model` before."""
        self._publication.restore_offer(model)
        self.first_model, self._whole_bytes = weights, len(model.values)

    def weights(self) -> Weights | None:
        """Return what a joining device may load. `load`: whether this is about as short as a whole model."""
        if self.first_model is None:
            return None
        model = self._publication.changes_since_offer(self._theta)
        if model is None:
            return self.first_model._replace(load=False)
        size = self.first_model.size + len(model.indices) + len(model.values)
        return self.first_model._replace(load=size <= _MAX_RATIO * self._whole_bytes)

    def add(self, indices: Index) -> None:
        """The next version was made by an update that changed the parameters at `indices`."""
        self._publication.add(indices)
        if self._recorder is not None:
            self._recorder.add(indices)

    def set_overlap(self, overlap: float) -> None:
        """Set how much the labels of devices overlap, from 0 to 1; 1: all hold the same."""
        self._publication.set_overlap(overlap)

    def reset(self) -> None:
        """The next version is another model. A device at any earlier version needs a whole model."""
        self._publication.reset()
        if self._recorder is not None:
            self._recorder.reset()

    def close(self) -> None:
        """Release resources. There are no requests afterwards."""
        self._publication.close()
