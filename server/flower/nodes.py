"""A Flower run's nodes: which are asked, answer, fail, and may be asked again. No flwr, no clock."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_MAX_BACKOFF = 60.0
"""The most seconds that a failing node is not asked."""

_CONNECTION_OUTCOMES = ("vanished", "timed-out", "unsent")
"""Outcomes that say nothing about the node's app."""

_BROKEN_AFTER = 2
"""Bad answers after which a node's app is broken."""


@dataclass(frozen=True, slots=True)
class SentModel:
    """The model that a node was sent, at version `base`. Its update will have the number `sequence`."""

    base: int
    sequence: int
    theta: NDArray[np.float32]


@dataclass(slots=True)
class FlowerNode:
    """One node. Flower numbers nodes; a restarted SuperNode is a new node."""

    device: int
    """Its number in the journal."""
    failures: int = 0
    """Failures since its last good answer."""
    broken: int = 0
    """Bad answers since the last good one."""
    refused: bool = False
    """Whether its last answer was refused for its content, and not for its age."""
    backoff_end: float = -math.inf
    request_time: float = -math.inf
    ingress: int = 0
    """Bytes of its replies, and"""
    egress: int = 0
    """of the messages to it."""


@dataclass(frozen=True, slots=True)
class PendingTraining:
    """A pending training message."""

    node: int
    sent: SentModel
    time: float


@dataclass(slots=True)
class Nodes:
    """All nodes of a run. Times are seconds of any one clock."""

    online: frozenset[int] = frozenset()
    by_id: dict[int, FlowerNode] = field(default_factory=dict)
    pending: dict[str, PendingTraining] = field(default_factory=dict)
    """Message id -> the pending message; one for each node."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Counts of results: "applied", the code of a refusal, or how the node failed."""
    failures: int = 0
    """Failures in a row, over all nodes."""
    last_failure: str = ""
    """The description of the last failure."""

    def all_broken(self) -> bool:
        """Whether no update was ever applied, and every online node has given two bad answers."""
        broken = [node in self.by_id and self.by_id[node].broken >= _BROKEN_AFTER for node in self.online]
        return not self.outcomes["applied"] and bool(broken) and all(broken)

    def idle(self, now: float, share: float, minimum: int = 1) -> list[int]:
        """Return the nodes to ask, the longest unasked first, so that `capacity` nodes are busy."""
        busy = {asked.node for asked in self.pending.values()}
        free = self.capacity(share, minimum) - len(busy & self.online)
        ready = [n for n in self.online - busy if n not in self.by_id or self.by_id[n].backoff_end <= now]
        return sorted(ready, key=lambda n: (self._last_request(n), n))[: max(0, free)]

    def capacity(self, share: float, minimum: int) -> int:
        """Return how many nodes may train at a time: `share` of those online, at least `minimum` and one."""
        return max(1, min(len(self.online), max(minimum, int(share * len(self.online)))))

    def _last_request(self, node: int) -> float:
        return self.by_id[node].request_time if node in self.by_id else -math.inf

    def add(self, message: str, request: PendingTraining) -> None:
        self.pending[message] = request
        self.by_id[request.node].request_time = request.time

    def devices(self) -> set[int]:
        """Return the devices with pending answers."""
        return {self.by_id[asked.node].device for asked in self.pending.values()}

    def expire(self, now: float, timeout: float) -> list[PendingTraining]:
        """Remove and return the messages that are pending for `timeout` or longer."""
        late = {message: asked for message, asked in self.pending.items() if now - asked.time >= timeout}
        for message, asked in late.items():
            del self.pending[message]
            self.record_failure(asked.node, "timed-out", now)
        return list(late.values())

    def record_success(self, node: int) -> None:
        self.outcomes["applied"] += 1
        self.by_id[node].refused = False
        self.by_id[node].failures = self.by_id[node].broken = self.failures = 0

    def record_failure(self, node: int, outcome: str, now: float, reason: str = "") -> None:
        """Count a failure. Do not ask the node for 0, 1, 2, 4, ... seconds, since its fault may last."""
        self.outcomes[outcome] += 1
        self.failures += 1
        self.last_failure = reason or self.last_failure
        failed = self.by_id[node]
        failed.broken += outcome not in _CONNECTION_OUTCOMES
        failed.backoff_end = now + min(_MAX_BACKOFF, (1 << min(failed.failures, 30)) // 2)
        failed.failures += 1

    def traffic(self) -> Iterable[tuple[int, int, int]]:
        """Return the (device, ingress, egress) of each node."""
        return [(node.device, node.ingress, node.egress) for node in self.by_id.values()]
