"""What an engine needs of whatever knows what to send to devices."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Entries, Where
from edgeflock.shared.protocol.messages import Model


class Publication(Protocol):
    """One caller at a time: the engine's."""

    def add(self, touched: Where) -> None:
        """The next version was made by an update that changed the parameters at `touched`."""

    def set_overlap(self, overlap: float) -> None:
        """So much have the labels of devices in common, from 0 to 1. The less that is, the more each device
        needs of what the others do.
        """

    def begin_again(self) -> None:
        """The next version is another model: it takes a whole one to go there from any version before."""

    def model(
        self,
        theta: Entries,
        base: int | None,
        held: int = 0,
        device: int = 0,
        part: slice | None = None,
    ) -> Model:
        """theta (float32 [P + B]) at the current version, for a device that holds `base` (None: nothing)
        and says `held` of it (protocol/chain.py); or of its parameters only a `part`, where that is known.
        """

    def offer(self, theta: NDArray[np.float32]) -> Model:
        """theta (float32 [P + B]) at version 0, whole: a device that asks may hold it from now on, as it is
        in this record.
        """

    def offered(self, model: Model) -> None:
        """The same, of a record that was offered elsewhere."""

    def since_offered(self, theta: Entries) -> Model | None:
        """What a device is sent that holds what was offered; None: theta whole."""

    def close(self) -> None:
        """Nobody will ask any more."""
