"""The publication interface: it decides what devices are sent of the model."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Index
from edgeflock.shared.protocol.messages import Model


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
