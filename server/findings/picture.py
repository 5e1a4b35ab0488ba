"""What the server knows at a moment, as far as it may be a sign of something wrong."""

from dataclasses import dataclass

from edgeflock.server.findings.agreement import AgreementAverages
from edgeflock.server.findings.course import EvaluationHistory
from edgeflock.server.findings.targets import Targets
from edgeflock.shared.protocol.frames import RunState

EVERY = 2.0
"""Seconds from one picture to the next."""


@dataclass(frozen=True, slots=True)
class Portrait:
    """A device. None where it tells nothing."""

    name: str
    here: bool
    """Whether it is connected, and nobody wants it to wait."""
    silent: float = 0.0
    """Seconds since anything came from it."""
    idle: bool = False
    """Whether that is much longer than usual."""
    starved: bool = False
    """Whether it says that it waits for samples."""
    why_left: str | None = None
    """Of a device that is away: one of frames.LEFT and more; None if nobody knows."""
    seen: AgreementAverages | None = None
    """What its updates are like."""
    lag: float | None = None
    """tau of its updates of late."""
    step: float | None = None
    """Seconds that it computed for its last update, as it says, of the"""
    interval: float = 0.0
    """seconds between two of its updates."""
    left: int = 0
    """How often its session ended within the last ten minutes, before its part was done."""
    refused: int = 0
    """Since the server started, and"""
    refusing: float = 0.0
    """the part of those it sent of late."""
    dropped: int = 0
    """Samples that its buffer had no room for, within the last minutes, and"""
    drops: int = 0
    """since it started."""
    unwritten: int = 0
    """Samples that were dropped because its disk was full, within the last minutes."""
    spool_fails: bool = False
    """Whether it says that it cannot keep the update that is on its way."""
    unfit: int = 0
    """Samples that it set aside since they were unfit, within the last minutes, of the"""
    came: int = 0
    """samples that came meanwhile."""
    temperature: float | None = None
    throttled: bool = False
    undervoltage: bool = False
    held_out: int = 0
    """Rows of the server's held-out data that it says it trains on."""
    clock: float | None = None
    """Seconds that its clock is ahead of the server's."""
    accuracy: float | None = None
    """Of the model on its own data, as it says (run.evaluate_on_devices), and"""
    evaluations: int = 0
    """how often it has said so since the server started."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A model that has diverged."""

    why: str
    device: str | None
    """Whose update took the largest step, if anybody's can be told."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A run."""

    time: float
    """Unix."""
    version: int = 0
    state: RunState = "training"
    diverged: Divergence | None = None
    course: EvaluationHistory = EvaluationHistory()
    evaluated: bool = True
    """Whether there are held-out data."""
    free: int | None = None
    """Bytes of room on the disk of the journal."""
    commit: float = 0.0
    """Seconds that it takes of late until a group of updates is durable."""
    devices: tuple[Portrait, ...] = ()
    targets: Targets | None = None
    """The numbers to predict, if they are not scaled."""
    labels: tuple[str, ...] = ()
    """The names of the classes, if they have some."""
