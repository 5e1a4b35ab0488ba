"""A Flower run's nodes: which are asked, answer, fail, and may be asked again. No flwr, no clock."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_LONGEST_REST = 60.0
"""The most seconds that a failing node is not asked."""

_OF_THE_LINE = ("vanished", "timed-out", "unsent")
"""Outcomes that say nothing about the node's app."""

_CONVINCING = 2
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
    rests_until: float = -math.inf
    asked_at: float = -math.inf
    ingress: int = 0
    """Bytes of its replies, and"""
    egress: int = 0
    """of the messages to it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A pending training message."""

    node: int
    sent: SentModel
    at: float


@dataclass(slots=True)
class Nodes:
    """All nodes of a run. Times are seconds of any one clock."""

    online: frozenset[int] = frozenset()
    known: dict[int, FlowerNode] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    """Message id -> the pending message; one for each node."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Counts of results: "applied", the code of a refusal, or how the node failed."""
    failures: int = 0
    """Failures in a row, over all nodes."""
    said: str = ""
    """The description of the last failure."""

    def hopeless(self) -> bool:
        """Whether no update was ever applied, and every online node has given two bad answers."""
        broken = [node in self.known and self.known[node].broken >= _CONVINCING for node in self.online]
        return not self.outcomes["applied"] and bool(broken) and all(broken)

    def idle(self, now: float, share: float, least: int = 1) -> list[int]:
        """Return the nodes to ask, the longest unasked first, so that `capacity` nodes are busy."""
        busy = {asked.node for asked in self.asked.values()}
        free = self.capacity(share, least) - len(busy & self.online)
        ready = [n for n in self.online - busy if n not in self.known or self.known[n].rests_until <= now]
        return sorted(ready, key=lambda n: (self._last_asked(n), n))[: max(0, free)]

    def capacity(self, share: float, least: int) -> int:
        """Return how many nodes may train at a time: `share` of those online, at least `least` and one."""
        return max(1, min(len(self.online), max(least, int(share * len(self.online)))))

    def _last_asked(self, node: int) -> float:
        return self.known[node].asked_at if node in self.known else -math.inf

    def ask(self, message: str, asked: Asked) -> None:
        self.asked[message] = asked
        self.known[asked.node].asked_at = asked.at

    def devices(self) -> set[int]:
        """Return the devices with pending answers."""
        return {self.known[asked.node].device for asked in self.asked.values()}

    def expire(self, now: float, timeout: float) -> list[Asked]:
        """Remove and return the messages that are pending for `timeout` or longer."""
        late = {message: asked for message, asked in self.asked.items() if now - asked.at >= timeout}
        for message, asked in late.items():
            del self.asked[message]
            self.failed(asked.node, "timed-out", now)
        return list(late.values())

    def succeeded(self, node: int) -> None:
        self.outcomes["applied"] += 1
        self.known[node].refused = False
        self.known[node].failures = self.known[node].broken = self.failures = 0

    def failed(self, node: int, outcome: str, now: float, said: str = "") -> None:
        """Count a failure. Do not ask the node for 0, 1, 2, 4, ... seconds, since its fault may last."""
        self.outcomes[outcome] += 1
        self.failures += 1
        self.said = said or self.said
        known = self.known[node]
        known.broken += outcome not in _OF_THE_LINE
        known.rests_until = now + min(_LONGEST_REST, (1 << min(known.failures, 30)) // 2)
        known.failures += 1

    def traffic(self) -> Iterable[tuple[int, int, int]]:
        """Return the (device, ingress, egress) of each node."""
        return [(node.device, node.ingress, node.egress) for node in self.known.values()]
