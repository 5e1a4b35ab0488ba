"""Nodes' shares of what counts, compared with their shares of the data. No flwr, no clock."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

_FADING = 0.9
"""The factor of an update's weight after a turn. In a turn as many updates count as there are nodes."""

_SHORT, _ENOUGH = 0.25, 0.5
"""A node is short of its share below the first part of it, until it reaches the second."""

_TURNS = 5.0
"""Turns after its first request before a node is judged: one reply may be late."""

_LOST, _LEARNED = 0.02, 0.3
"""A class is lost if at most the first part of it is right, while the mean is at least the second."""

_BY_CLASS = ("acc", "recall")
"""Words in the names of metrics that are lists of accuracies by class."""


class Short(NamedTuple):
    """A node whose data hardly count."""

    node: int
    counted: float
    """Its share of what counted recently, and"""
    data: float
    """of all nodes' samples."""


@dataclass(slots=True)
class Shares:
    """The shares of a run's nodes, since this process began."""

    _samples: dict[int, int] = field(default_factory=dict)
    """Node -> the samples of its last reply."""
    _counted: dict[int, float] = field(default_factory=dict)
    """Node -> the decaying sum of its replies' weights."""
    _turns: dict[int, float] = field(default_factory=dict)
    """Node -> turns since its first request."""
    _short: set[int] = field(default_factory=set)

    def record_request(self, node: int) -> None:
        """Record a request to a node. Until it answers, it is assumed to have as much data as others."""
        self._turns.setdefault(node, 0.0)

    def record_reply(self, node: int, samples: int) -> None:
        """Record the number of samples of a reply, whether or not it counts."""
        self._samples[node] = samples

    def record_update(self, node: int, weight: float) -> None:
        """Record that a node's reply counts with this weight."""
        self._counted[node] = self._counted.get(node, 0.0) + weight

    def advance(self, updates: int) -> None:
        """Record the number of updates that have counted since the last call."""
        turns = updates / max(1, len(self._samples))
        self._turns = {node: known + turns for node, known in self._turns.items()}
        self._counted = {node: part * _FADING**turns for node, part in self._counted.items()}

    def find_short(self, online: Set[int]) -> Iterator[Short]:
        """Yield the online nodes that are short of their share, and were not at the last call."""
        counted = sum(part for node, part in self._counted.items() if node in online)
        before, self._short = self._short, set()
        if not counted:
            return
        usual = sum(self._samples.values()) / len(self._samples)
        samples = {node: self._samples.get(node, usual) for node in self._turns.keys() & online}
        total = sum(samples.values())
        for node in sorted(samples):
            turns = self._turns[node]
            found = Short(node, self._counted.get(node, 0.0) / counted, samples[node] / total)
            bound = _ENOUGH if node in before else _SHORT
            if turns >= _TURNS and found.counted < bound * found.data:
                self._short.add(node)
                if node not in before:
                    yield found


def lost_classes(metrics: Mapping[str, object]) -> dict[str, Sequence[int]]:
    """Return metric -> the lost classes, from lists of accuracies by class."""
    found: dict[str, Sequence[int]] = {}
    for name, parts in metrics.items():
        if isinstance(parts, list) and len(parts) > 1 and any(word in name.lower() for word in _BY_CLASS):
            lost = [number for number, part in enumerate(parts) if part <= _LOST]
            if lost and sum(parts) / len(parts) >= _LEARNED:
                found[name] = lost
    return found
