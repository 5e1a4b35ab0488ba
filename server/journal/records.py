"""The records that a journal stores and returns."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime, StepMethod
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import Evaluation

SUM_DEVICE = " sum "
"""The name in the journal of the device that secure sums come from. No device's own name has outer spaces."""


class LastReceipt(NamedTuple):
    """A device's highest journaled sequence number, and the version that this update made."""

    sequence: int
    version: int


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The run that a journal belongs to."""

    run: str
    model: str
    layout: Layout
    start: Start | None = None
    """How devices make version 0. None: it must be sent."""
    data: Description | None = None
    """What the run's samples are. None: it was not known when the run began."""


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """The model at a version: theta and, if the regime keeps one, its average, both float32 [P + B]."""

    version: int
    theta: NDArray[np.float32]
    average: NDArray[np.float32] | None
    memory: bytes | None = None
    """The optimizer's memory (descent/memory.py), if it has any."""


@dataclass(frozen=True, slots=True)
class JournaledUpdate:
    """An update from the journal: the version that it made, and its Update record as received."""

    version: int
    frame: bytes
    time: float
    """When it came."""
    share: float = 1.0
    """The share of it that counts."""


def evaluation_row(evaluation: Evaluation) -> tuple[object, ...]:
    """An evaluation as a row: metrics as JSON, "" without any. Classes are not stored."""
    *fields, metrics, _ = evaluation
    return *fields, json.dumps(dict(metrics)) if metrics else ""


def evaluation_from_row(row: Sequence[Any]) -> Evaluation:
    """The evaluation of a row of `evaluation_row`. Raises JournalDamaged if it is invalid."""
    *fields, metrics = row
    try:
        return Evaluation._make([*fields, json.loads(metrics) if metrics else {}, ()])
    except (ValueError, TypeError) as error:
        raise JournalDamaged(f"the metrics of version {row[0]} are none: {error}") from error


@dataclass(frozen=True, slots=True)
class RegimeStart:
    """The regime by which updates count from `version` on."""

    version: int
    regime: Regime
    kind: str = "settings"
    """The reason: settings, an `operator`, another number of `nodes`, or a rollback (`rollback_kind`)."""

    def row(self) -> tuple[object, ...]:
        """The row in the journal."""
        regime = self.regime
        return (
            self.version, regime.rule, regime.learning_rate, regime.window, regime.average,
            regime.base_batch, regime.rounds, self.kind, regime.method.text(),
        )  # fmt: skip

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "RegimeStart":
        """Decode a row. Raises ConfigError if it is invalid."""
        version, *counts, kind, how = row
        return cls(version, replace(Regime(*counts), method=StepMethod.from_text(how)), kind)

    @property
    def rollback_target(self) -> int | None:
        """The version that a rollback restored. None without a rollback."""
        return int(self.kind.removeprefix(_ROLLBACK)) if self.kind.startswith(_ROLLBACK) else None


_ROLLBACK = "rollback to "


def rollback_kind(target: int) -> str:
    """The kind of a regime that begins with the model of version `target`."""
    return f"{_ROLLBACK}{target}"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A learning rate that an operator chose, and the configured one at that time."""

    configured: float
    chosen: float
    version: int
    """The version from which it holds."""


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """A device, its accepted updates, and its traffic in bytes at the last account."""

    device: int
    name: str
    updates: int
    ingress: int
    egress: int
