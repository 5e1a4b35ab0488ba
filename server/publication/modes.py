"""Publications by their name in `downlink.mode`."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.server.publication.copies import Copies
from edgeflock.server.publication.exact import Exact
from edgeflock.server.publication.lossy import Lossy
from edgeflock.server.publication.spill import Spill
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Model
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

_LAG = 100
"""Versions that a device's replica may lag behind the model on average, beyond its staleness, where a version
is of _BATCH samples. Versions of larger batches change the model more."""
_BATCH, _EXPONENT, _MIN_LAG = 10, 0.6, 25

First = NDArray[np.float32] | None
"""The model of version 0 (float32 [P + B]) if every device can make it, else None."""


def _exact(config: Config, layout: Layout, version: int, first: First, directory: Path | None) -> Publication:
    return Exact(layout, version, config.model.pull)


def _lossy(config: Config, layout: Layout, version: int, first: First, directory: Path | None) -> Publication:
    size, limits = layout.parameters.size, config.limits
    spill = Spill(directory, size, limits.downlink_disk_bytes)
    parameters = None if first is None else first[:size]
    copies = Copies(layout.parameters, parameters, limits.downlink_bytes // (4 * size), spill)
    return Lossy(layout, version, copies, config.downlink, _patience(config, size), lag_of(config))


def lag_of(config: Config) -> int:
    """Return the versions that a replica may lag: 100 with batches of 10, 50 with 32, at least 25.

    0: there is no bound, because devices of a round begin at one version.
    """
    if config.coordination.traits.rounds:
        return 0
    part: float = min(1.0, _BATCH / config.local.batch) ** _EXPONENT
    return max(_MIN_LAG, round(_LAG * part))


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
