"""The interface through which an engine writes its journal (ledger/journal.py implements it)."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime
from edgeflock.shared.protocol.frames import Evaluation


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
    ) -> None: ...

    def add_snapshot(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        memory: bytes | None = None,
    ) -> None: ...

    def add_regime(self, version: int, regime: Regime, kind: str = "settings") -> None: ...

    def add_rollback(
        self,
        version: int,
        target: int,
        regime: Regime,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None,
        memory: bytes | None,
        now: float,
    ) -> None: ...

    def last_rollback(self) -> int: ...

    def add_adjustment(self, version: int, configured: float, chosen: float) -> None: ...

    def add_evaluation(self, evaluation: Evaluation) -> None: ...

    def add_account(self, device: int, ingress: int, egress: int) -> None: ...

    def drop_frames(self, version: int) -> None: ...

    def device_id(self, name: str) -> int: ...

    def last_receipts(self) -> dict[int, LastReceipt]: ...

    def receipt(self, device: int, sequence: int) -> int | None: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...
