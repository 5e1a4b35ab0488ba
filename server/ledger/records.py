"""What a journal takes and gives back, as records."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start


@dataclass(frozen=True, slots=True)
class BegunRun:
    """Whose journal it is."""

    run: str
    model: str
    layout: Layout
    start: Start | None = None
    """How devices make version 0; None: it must be sent."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The model at a version: theta and, if the regime keeps one, its average, both float32 [P + B]."""

    version: int
    theta: NDArray[np.float32]
    average: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class JournaledUpdate:
    """The version that an update made, and its Update record as received."""

    version: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Journaled:
    """The version that an update made, and when (Unix seconds; in a fleet, virtual ones)."""

    version: int
    time: float


@dataclass(frozen=True, slots=True)
class RegimeStart:
    """From `version` on updates count by `regime`."""

    version: int
    regime: Regime
    kind: str = "settings"
    """Why: the settings said so, or an `operator`, or it is a rollback (`rolled_back`)."""

    @property
    def back_to(self) -> int | None:
        """Of a rollback: the version of which the model is."""
        return int(self.kind.removeprefix(_ROLLBACK)) if self.kind.startswith(_ROLLBACK) else None


_ROLLBACK = "rollback to "


def rolled_back(to: int) -> str:
    """The kind of a regime that begins with the model of version `to`."""
    return f"{_ROLLBACK}{to}"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A learning rate that an operator chose, and the one that the settings had then."""

    configured: float
    chosen: float


@dataclass(frozen=True, slots=True)
class Account:
    """A device, its accepted updates, and its traffic in bytes at the last account."""

    device: int
    name: str
    updates: int
    ingress: int
    egress: int
