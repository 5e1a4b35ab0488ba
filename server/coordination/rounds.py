"""Rounds: all updates that were computed from the same version apply together: synchronous SGD.

A round opens with its first update and ends once every device that is there has contributed, or a quorum of
them has, or at a deadline. Whoever comes later starts again from the version that it made.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from edgeflock.server.coordination.coordinator import Apply, Push
from edgeflock.server.descent import MEAN, Gathered, Step, Where
from edgeflock.shared.errors import BadSequence
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.coordination import CoordinationSettings


@dataclass(frozen=True, slots=True)
class Ending:
    """When a round ends."""

    quorum: int
    """How many updates are enough; 0: one of each device that is there."""
    deadline: float
    """Seconds after its first update when it ends in any case."""

    def is_enough(self, contributed: Set[int], present: Set[int]) -> bool:
        """Whether a round need not wait any longer to which these devices have contributed."""
        return len(contributed) >= self.quorum if self.quorum else present <= contributed


@dataclass(slots=True)
class _Open:
    """A round that gathers."""

    due: float
    """When it ends in any case."""
    gathered: Gathered
    pushes: dict[int, Push] = field(default_factory=dict)
    """device -> its update, in the order of their coming."""
    touched: list[Where] = field(default_factory=list)
    """In the same order."""


class Rounds:
    """A coordinator."""

    tasks = None

    def __init__(self, ending: Ending, layout: Layout, aggregate: str = MEAN) -> None:
        """`aggregate` says how updates come together (descent/aggregates.py)."""
        self._ending = ending
        self._layout = layout
        self._aggregate = aggregate
        self._present: set[int] = set()
        self._open: _Open | None = None

    @classmethod
    def of(cls, settings: CoordinationSettings, layout: Layout) -> "Rounds":
        return cls(Ending(settings.quorum, settings.deadline), layout, settings.aggregate)

    @property
    def held(self) -> Mapping[int, Push]:
        return self._open.pushes if self._open is not None else {}

    @property
    def gathered(self) -> Gathered | None:
        return None if self._open is None else self._open.gathered

    @property
    def due(self) -> float | None:
        return None if self._open is None else self._open.due

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Gathered; `tick` says when the round is over, so that all that came at once is in it."""
        if self._open is None:
            self._open = _Open(now + self._ending.deadline, Gathered(self._layout, self._aggregate))
        self._open.gathered.add(step)
        self._open.pushes[push.device] = push
        self._open.touched.append(step.where)
        return None

    def waiting(self, push: Push) -> Push | None:
        held = self.held.get(push.device)
        if held is not None and push.update.sequence != held.update.sequence:
            raise BadSequence(
                f"sequence {held.update.sequence} waits for the end of its round; wait for its receipt"
            )
        return held

    def arrived(self, device: int) -> None:
        self._present.add(device)

    def left(self, device: int) -> None:
        self._present.discard(device)

    def give_up(self) -> list[Push]:
        pushes = list(self.held.values())
        self._open = None
        return pushes

    def tick(self, now: float) -> Apply | None:
        over = self._open
        if over is None:
            return None
        if now < over.due and not self._ending.is_enough(over.pushes.keys(), self._present):
            return None
        self._open = None
        return Apply(tuple(zip(over.pushes.values(), over.touched, strict=True)), over.gathered)
