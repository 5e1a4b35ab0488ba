"""What a journal takes and gives back, as records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime, StepMethod
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import Evaluation


@dataclass(frozen=True, slots=True)
class BegunRun:
    """Whose journal it is."""

    run: str
    model: str
    layout: Layout
    start: Start | None = None
    """How devices make version 0; None: it must be sent."""
    data: Description | None = None
    """What its samples are; None: nobody said so as it began."""


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """The model at a version: theta and, if the regime keeps one, its average, both float32 [P + B]."""

    version: int
    theta: NDArray[np.float32]
    average: NDArray[np.float32] | None
    memory: bytes | None = None
    """What the optimizer remembers (descent/memory.py), if it does."""


@dataclass(frozen=True, slots=True)
class JournaledUpdate:
    """The version that an update made, its Update record as received, and when that was."""

    version: int
    frame: bytes
    time: float
    """When it came."""
    share: float = 1.0
    """What part of it counts."""


def row_of(evaluation: Evaluation) -> tuple[object, ...]:
    """As its table has it: metrics as JSON, "" if there are none; a journal knows no classes."""
    *told, metrics, _ = evaluation
    return *told, json.dumps(dict(metrics)) if metrics else ""


def evaluation_of(row: Sequence[Any]) -> Evaluation:
    """What `row_of` made a row of. Raises JournalDamaged if it cannot have."""
    *told, metrics = row
    try:
        return Evaluation._make([*told, json.loads(metrics) if metrics else {}, ()])
    except (ValueError, TypeError) as error:
        raise JournalDamaged(f"the metrics of version {row[0]} are none: {error}") from error


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
    """Why: settings, an `operator`, other `nodes` at work, or it is a rollback (`rolled_back`)."""

    def row(self) -> tuple[object, ...]:
        """As the journal keeps it."""
        of = self.regime
        return (
            self.version, of.rule, of.learning_rate, of.window, of.average, of.base_batch, of.rounds,
            self.kind, of.how.text(),
        )  # fmt: skip

    @classmethod
    def of(cls, row: Sequence[Any]) -> "RegimeStart":
        """What a row came of. Raises ConfigError if it is of nothing."""
        version, *counts, kind, how = row
        return cls(version, replace(Regime(*counts), how=StepMethod.read(how)), kind)

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
    version: int
    """From which on it holds."""


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """A device, its accepted updates, and its traffic in bytes at the last account."""

    device: int
    name: str
    updates: int
    ingress: int
    egress: int
