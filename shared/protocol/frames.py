"""Records that a server sends to monitors of its run: first a Snapshot, then Deltas (docs/operations.md).

feed.py encodes the records. Devices, evaluations and events are positional rows, because a frame may have
thousands of them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

DeviceState = Literal["training", "waiting", "starved", "idle", "paused", "away"]
Role = Literal["viewer", "admin"]
RunState = Literal["training", "finished", "diverged"]
EventKind = Literal[
    "joined", "left", "refused", "paused", "resumed", "dropped", "config", "checkpoint", "round", "diverged",
    "finished", "warning", "finding", "over",
]  # fmt: skip
"""finding: something begins to be wrong; over: it is no longer. The text begins with the finding's kind."""

Severity = Literal["critical", "warning", "notice"]
FindingKind = Literal[
    "diverged", "targets", "held-out", "unevaluated", "learning", "stalled", "overfitting", "lost-class",
    "lost-device", "disagrees", "norm", "statistics", "silent", "gone", "flapping", "stale", "refused",
    "unfit", "dropping", "hot", "throttled", "undervoltage", "clock", "outdated", "disk", "journal",
]  # fmt: skip

LEFT = ("finished", "retired", "error", "refused", "killed", "timed out", "replaced", "stopped")
"""What why_left begins with: the device has done its part; its owner stopped it; it failed, as it says; the
server hung up; the line broke without a word; nothing came any more; a newer session has its name; the server
stopped."""

GATEWAY_LOST = "killed: the connection to its gateway"
"""What why_left begins with if the device left together with its gateway."""

SERVER_STOPPED = "stopped: the server closed the session"
SESSION_CLOSED = "retired: it closed its session"
"""Without a Goodbye. A device also does this to begin another one, e.g. to introduce itself anew."""

MAX_CLASSES = 1000
"""That an evaluation tells apart."""

MAX_FINDINGS = 50
"""In an overview: more than anybody reads."""

BINS = 12
"""Of the histogram of staleness: 0, 1, 2-3, 4-7, ..., 512-1023, 1024 and more."""


class DeviceRow(NamedTuple):
    """A device. None where the server does not know."""

    id: int
    """The key."""
    name: str
    state: DeviceState
    """waiting: for its turn, in a run of cohorts; idle: connected, but silent for three times as long as it
    usually is; starved: so, and for want of samples, as it says.
    """
    class_: str | None
    """What kind of machine it says it is."""
    backend: str | None
    rate: float | None
    """Samples a second that arrive at it."""
    batch: int | None
    depth: int | None
    """Samples that wait in its buffer, and"""
    drops: int | None
    """those that the buffer had no room for."""
    quarantined: int | None
    """Samples that were not fit for training, and"""
    duplicates: int | None
    """those that had come before."""
    stream_accuracy: float | None
    """Part of its last samples, about 1,000, that the model had right before it trained on them, and"""
    stream_loss: float | None
    """its loss on them."""
    last_seen: float | None
    """Unix time."""
    staleness: int | None
    """tau of its last update."""
    loss: float | None
    updates: int
    refused: int
    ingress: int
    """Bytes received from it, and"""
    egress: int
    """sent to it."""
    samples: int
    compressed: int
    """Updates that held a selection of the gradient."""
    cpu: float | None
    """Percent of all its cores."""
    ram: float | None
    """MiB that are used."""
    temperature: float | None
    """Degrees Celsius."""
    battery: float | None
    """Percent."""
    undervoltage: bool | None
    shards: int | None
    """Data shards that it holds, in a run of tasks, and"""
    repeated: int | None
    """its results of shards that already had one."""
    paused_because: str | None
    smoothed_loss: float | None
    """Of its updates of late."""
    updates_per_s: float | None
    """Of late; None before two of them, and while it is away."""
    why_left: str | None
    """Why its last session ended, first one of LEFT; None while it is here, and if nobody knows."""
    memory: float | None
    """MiB that its machine has."""
    clipped: int | None
    """Updates since the server started of which the defence let a part count, and"""
    dropped: int | None
    """nothing; None without a defence."""
    standing: float | None
    """How its updates agree with the server's own gradient, -1 to 1; None if that is not known."""
    labels: str | None
    """Labels of its owner and of operators, e.g. floor=2 site=north; None without any."""
    edgeflock: str | None
    """The version of Edgeflock that it says it runs."""


class Finding(NamedTuple):
    """Something that is wrong with the run, or with one device."""

    kind: FindingKind
    severity: Severity
    device: str | None
    since: float
    """Unix time."""
    text: str
    """What it is, and"""
    remedy: str
    """what to do."""


Classes = tuple[tuple[int, int], ...]
"""Of each class 0, 1, ... (predictions that are right, predictions)."""


RETURN = "return"
"""The metric of a policy that acts: the mean sum of the rewards of some episodes."""


class Evaluation(NamedTuple):
    """The model at `version` on held-out data; traffic in bytes since the run began."""

    version: int
    time: float
    loss: float | None
    """None if it is not a finite number: the model has diverged."""
    accuracy: float | None
    """None if the loss has none."""
    ingress: int
    egress: int
    metrics: Mapping[str, float | None] = {}
    """model.metrics by their names; None if one failed, or is not a finite number."""
    classes: Classes = ()
    """Empty if targets are no classes, or of more than MAX_CLASSES. A server keeps its last evaluation's."""


class Event(NamedTuple):
    """Something that happened."""

    time: float
    kind: EventKind
    device: str | None
    text: str


class Point(NamedTuple):
    """One update in the history of a device."""

    time: float
    loss: float | None
    staleness: int | None
    bytes: int
    """Received from it until then."""


class Mark(NamedTuple):
    """The run's counts at a time (GET /v1/history). Rates are differences of two marks."""

    time: float
    """Unix."""
    version: int
    ingress: int
    """Bytes that the server received by then, and"""
    egress: int
    """sent."""
    loss: float | None
    """Of training, averaged over the updates before."""
    up: int
    """Devices that are neither away nor paused."""


class TaskRoundStatus(NamedTuple):
    """How a round of tasks stands."""

    shards: int
    """That devices that are there hold."""
    finished: int
    """Of which there is a result."""
    wanted: int
    """How many more results end the round."""
    duplicates: int
    """Results, since the server started, of shards that already had one."""


class PrivacySpent(NamedTuple):
    """What a run with differential privacy has cost so far (docs/privacy.md)."""

    unit: str
    """What is hidden: a `device` or an `example`."""
    epsilon: float | None
    """Of the device that has taken part most often, with the fewest examples. None: infinite."""
    delta: float
    budget: float
    """The epsilon at which the run ends; 0: none."""
    participations: int
    """The most updates of one device that count so far, and"""
    limit: int
    """how many may count; 0: no limit."""
    noise: float
    """The noise multiplier."""

    @property
    def text(self) -> str:
        """E.g. 1.2 of 2."""
        epsilon = "infinite" if self.epsilon is None else f"{self.epsilon:.3g}"
        return f"{epsilon} of {self.budget:g}" if self.budget else epsilon


class GatewayRow(NamedTuple):
    """A gateway that is connected (docs/gateways.md)."""

    name: str
    address: str
    since: float
    """Unix time."""
    devices: int
    """That are connected to it."""
    updates_per_s: float | None
    """Of its devices, over about ten seconds; None before there were two frames. So are"""
    ingress_rate: float | None
    """bytes a second that it sends to the server, and"""
    egress_rate: float | None
    """those that it is sent."""
    waiting: int
    """Bytes that it has not taken yet."""


class ShardRow(NamedTuple):
    """A process that has a slice of the model (docs/shards.md)."""

    node: str
    """Of the cluster."""
    nbytes: int
    """What it keeps."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What does not change while a server runs."""

    run: str
    model: str
    parameters: int
    layout_size: int
    """Entries of the flat vector: parameters and running statistics."""
    updates_target: int
    """0: none."""
    config: dict[str, Any]
    """Section -> key -> value; without secrets."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The run as a whole, now."""

    version: int
    updates_per_s: float
    ingress: int
    egress: int
    ingress_rate: float
    """Bytes a second, over about ten seconds."""
    egress_rate: float
    dense_bytes: int
    """What the same updates would have cost as dense float32."""
    reduction: float | None
    """dense_bytes over what devices sent."""
    staleness: list[int]
    """Updates in each of BINS bins of tau."""
    devices: int
    up: int
    """Of them, those that are neither away nor paused."""
    cnc: float | None
    """Part of the updates that were compressed."""
    loss: float | None
    """Of training, averaged over the recent updates."""
    evaluation_failed: bool
    state: RunState
    shared_samples: int
    tasks: TaskRoundStatus | None
    """The open round, in a run of tasks."""
    findings: tuple[Finding, ...] = ()
    """What is wrong now, the worst first; at most MAX_FINDINGS."""
    more_findings: int = 0
    """Those that had no room."""
    began: float | None = None
    """Unix time of the run's first update; None before it, or if nobody knows."""
    gateways: tuple[GatewayRow, ...] = ()
    """Those with the most devices first."""
    shards: tuple[ShardRow, ...] = ()
    """None if the model is in the server, and while shards are made again."""
    restored: int = 0
    """How often shards were made again since the server started."""
    privacy: PrivacySpent | None = None
    """What differential privacy has cost; None: the run has none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything, as a watcher needs it to begin with."""

    time: float
    run: RunFacts
    role: Role
    devices: tuple[DeviceRow, ...]
    overview: Overview
    evaluations: tuple[Evaluation, ...]
    """All of them, thinned if they are many."""
    events: tuple[Event, ...]
    """The newest ones."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What has changed since the frame before."""

    time: float
    overview: Overview
    devices: tuple[DeviceRow, ...]
    """Whole rows, of those devices that changed."""
    evaluations: tuple[Evaluation, ...]
    events: tuple[Event, ...]
    missed_events: int
    """Events that were dropped, because the watcher was too slow for them."""


Frame = Snapshot | Delta

COLUMNS = tuple(name.rstrip("_") for name in DeviceRow._fields)


def staleness_bin(tau: int) -> int:
    """The bin of a histogram that an update of staleness `tau` >= 0 counts in."""
    return min(tau.bit_length(), BINS - 1)


def worst_class(classes: Iterable[Sequence[int]]) -> tuple[int, float] | None:
    """(The class of which the smallest part is right, that part); None if there are none."""
    parts = [(right / total, number) for number, (right, total) in enumerate(classes) if total]
    return min(parts)[::-1] if parts else None


def finite_or_none(value: float | None) -> float | None:
    """The number, or None for what a frame cannot hold."""
    return value if value is not None and math.isfinite(value) else None
