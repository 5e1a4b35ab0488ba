"""Whose data hardly count: nodes' shares of what counted, beside those of the data. No flwr, no clock."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

_FADING = 0.9
"""What is left of an update's part after a turn, in which as many updates count as nodes have data."""

_SHORT, _ENOUGH = 0.25, 0.5
"""A node is short of its share below the first part of it, and until it has the second."""

_TURNS = 5.0
"""Turns after it was asked first until a node is judged: one reply may be late."""

_LOST, _LEARNED = 0.02, 0.3
"""A class is lost if so little of it is right, where so much is on average."""

_BY_CLASS = ("acc", "recall")
"""In the name of a list of numbers that are shares of what is right, by class."""


class Short(NamedTuple):
    """A node whose data hardly count."""

    node: int
    counted: float
    """Its share of what counted of late, and"""
    data: float
    """of all nodes' samples."""


@dataclass(slots=True)
class Shares:
    """Of a run's nodes, since this process began."""

    _samples: dict[int, int] = field(default_factory=dict)
    """node -> of how many its last reply was."""
    _counted: dict[int, float] = field(default_factory=dict)
    """node -> how much its replies counted, of which old ones fade."""
    _known: dict[int, float] = field(default_factory=dict)
    """node -> turns since it was asked first."""
    _short: set[int] = field(default_factory=set)

    def ask(self, node: int) -> None:
        """A node is asked. Until it answers it is taken to have as much data as others."""
        self._known.setdefault(node, 0.0)

    def answer(self, node: int, samples: int) -> None:
        """A reply came that is of so many samples, whatever becomes of it."""
        self._samples[node] = samples

    def count(self, node: int, weight: float) -> None:
        """A node's reply counts, and so much."""
        self._counted[node] = self._counted.get(node, 0.0) + weight

    def pass_by(self, updates: int) -> None:
        """So many updates have counted since the last time."""
        turns = updates / max(1, len(self._samples))
        self._known = {node: known + turns for node, known in self._known.items()}
        self._counted = {node: part * _FADING**turns for node, part in self._counted.items()}

    def short(self, online: Set[int]) -> Iterator[Short]:
        """The nodes of those online that are short of their share, and were not when this was asked last."""
        counted = sum(part for node, part in self._counted.items() if node in online)
        before, self._short = self._short, set()
        if not counted:
            return
        usual = sum(self._samples.values()) / len(self._samples)
        samples = {node: self._samples.get(node, usual) for node in self._known.keys() & online}
        total = sum(samples.values())
        for node in sorted(samples):
            turns = self._known[node]
            found = Short(node, self._counted.get(node, 0.0) / counted, samples[node] / total)
            bound = _ENOUGH if node in before else _SHORT
            if turns >= _TURNS and found.counted < bound * found.data:
                self._short.add(node)
                if node not in before:
                    yield found


def lost_classes(metrics: Mapping[str, object]) -> dict[str, Sequence[int]]:
    """metric -> the classes of which nothing is right, of lists of what is right by class."""
    found: dict[str, Sequence[int]] = {}
    for name, parts in metrics.items():
        if isinstance(parts, list) and len(parts) > 1 and any(word in name.lower() for word in _BY_CLASS):
            lost = [number for number, part in enumerate(parts) if part <= _LOST]
            if lost and sum(parts) / len(parts) >= _LEARNED:
                found[name] = lost
    return found
