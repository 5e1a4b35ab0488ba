"""The status of the run at a moment: the facts that findings are made from."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from edgeflock.server.findings.agreement import AgreementAverages
from edgeflock.server.findings.history import EvaluationHistory
from edgeflock.shared.model.description import need_scaling
from edgeflock.shared.protocol.frames import FindingKind, RunState, Severity

REMEDY = (
    "scale the targets in the data, to mean 0 and deviation 1 (stored data's are, without scale=none), or "
    "lower coordination.learning_rate; then begin another run, or undo the leap: edgeflock rollback VERSION"
)


class Targets(NamedTuple):
    """The mean and deviation of the held-out targets, as models learn them."""

    mean: float
    deviation: float

    @classmethod
    def from_y(cls, y: NDArray[Any]) -> "Targets | None":
        """Return None for classes."""
        return cls(float(y.mean()), float(y.std())) if y.dtype.kind == "f" and y.size else None

    @property
    def problem(self) -> str:
        """Why models do not learn the targets well; empty if their scale is fine."""
        if not need_scaling(self.mean, self.deviation):
            return ""
        return (
            f"the targets have mean {self.mean:.3g} and deviation {self.deviation:.3g}, and models learn "
            "best of about 0 and 1"
        )


INTERVAL = 2.0
"""Seconds from one status to the next."""


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """The state of a device. None: the device does not report it."""

    name: str
    present: bool
    """Whether it is connected and not paused."""
    silent_seconds: float = 0.0
    """Seconds since anything came from it."""
    browser: bool = False
    """Whether it is a page in a browser."""
    idle: bool = False
    """Whether this is much longer than usual."""
    starved: bool = False
    """Whether it says that it waits for samples."""
    leave_reason: str | None = None
    """Why a device that is away left: one of frames.LEFT and more; None if that is unknown."""
    averages: AgreementAverages | None = None
    """The averages over its updates."""
    lag: float | None = None
    """tau of its recent updates."""
    step: float | None = None
    """Seconds of computing for its last update, as it reports, of the"""
    interval: float = 0.0
    """seconds between two of its updates."""
    departures: int = 0
    """How often its session ended within the last ten minutes, before its part was done."""
    refused_updates: int = 0
    """Its refused updates since the server started, and"""
    refused_share: float = 0.0
    """the refused part of its recent ones."""
    recent_drops: int = 0
    """Samples that its buffer had no room for, within the last minutes, and"""
    total_drops: int = 0
    """since it started."""
    unwritten_samples: int = 0
    """Samples that were dropped because its disk was full, within the last minutes."""
    spool_fails: bool = False
    """Whether it reports that it cannot keep its pending update."""
    unfit_samples: int = 0
    """Samples that it set aside since they were unfit, within the last minutes, of the"""
    samples: int = 0
    """samples that came meanwhile."""
    temperature: float | None = None
    throttled: bool = False
    undervoltage: bool = False
    held_out_rows: int = 0
    """Rows of the server's held-out data that it says it trains on."""
    clock_error: float | None = None
    """Seconds that its clock is ahead of the server's."""
    accuracy: float | None = None
    """The accuracy of the model on its own data, as it reports (evaluation.on_devices), and"""
    evaluations: int = 0
    """how often it has reported it since the server started."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A model that has diverged."""

    reason: str
    device: str | None
    """The device whose update took the largest step, if one stands out."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    time: float
    """Unix time."""
    version: int = 0
    state: RunState = "training"
    divergence: Divergence | None = None
    history: EvaluationHistory = EvaluationHistory()
    is_evaluated: bool = True
    """Whether there are held-out data."""
    free_bytes: int | None = None
    """Free bytes on the disk of the journal."""
    commit_seconds: float = 0.0
    """Recent seconds until a group of updates is durable."""
    devices: tuple[DeviceStatus, ...] = ()
    targets: Targets | None = None
    """The regression targets, if they are not scaled."""
    labels: tuple[str, ...] = ()
    """The names of the classes, if they have some."""
    outdated: tuple[tuple[str, str], ...] = ()
    """(device, why): devices that were refused lately because they speak another protocol."""


Subject = tuple[FindingKind, str | None]
"""(kind, device). There is at most one finding for each."""

Subjects = Container[Subject]
"""The subjects of the last findings."""


class Sign(NamedTuple):
    """A finding without its time."""

    kind: FindingKind
    severity: Severity
    device: str | None
    text: str
    remedy: str


Rule = Callable[[RunStatus, Subjects], Iterator[Sign]]
