"""The interface through which an engine writes its journal (ledger/journal.py implements it)."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime
from edgeflock.shared.protocol.frames import Evaluation

SUM_DEVICE = " sum "
"""The name in the journal of the device that secure sums come from. No device's own name has outer spaces."""


class LastReceipt(NamedTuple):
    """A device's highest journaled sequence number, and the version that this update made."""

    sequence: int
    version: int


class Log(Protocol):
    """Gathers writes until `commit`, which returns only when they are durable. One caller at a time."""

    def add_update(
        self,
        version: int,
        device: int,
        sequence: int,
        time: float,
        loss: float,
        samples: int,
        frame: bytes,
        share: float = 1.0,
        decision: bytes | None = None,
    ) -> None:
        """Add the update that makes `version`. `time`: Unix seconds; `share`: the part of it that counts."""

    def add_snapshot(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        memory: bytes | None = None,
    ) -> None:
        """Add a snapshot of theta (float32 [P + B]), the averaged model and the optimizer's state."""

    def add_regime(self, version: int, regime: Regime, kind: str = "settings") -> None:
        """Record that `regime` holds from `version`, the current one, on. `kind`: why it begins."""

    def add_rollback(
        self,
        version: int,
        target: int,
        regime: Regime,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None,
        memory: bytes | None,
        now: float,
    ) -> None:
        """Make `version`, the next one, the model of `target` again, with a snapshot and a regime."""

    def last_rollback(self) -> int:
        """Return the version that the last rollback made; 0: there was none."""

    def add_adjustment(self, version: int, configured: float, chosen: float) -> None:
        """Record that the learning rate is `chosen` from `version` on. The settings say `configured`."""

    def add_evaluation(self, evaluation: Evaluation) -> None: ...

    def add_account(self, device: int, ingress: int, egress: int) -> None:
        """Record the traffic of a device until now, in bytes."""

    def drop_frames(self, version: int) -> None:
        """Drop the records, but not the facts, of updates that made the versions up to `version`."""

    def device_id(self, name: str) -> int:
        """Return the number of a device. A new device gets one, which is durable at once."""

    def last_receipts(self) -> dict[int, LastReceipt]: ...

    def receipt(self, device: int, sequence: int) -> int | None:
        """Return the version that this update of a device made; None: it is not in the journal."""

    def commit(self) -> None: ...
    def close(self) -> None: ...

    def abandon(self) -> None:
        """Close without a commit."""
