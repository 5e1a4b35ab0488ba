"""Rounds: all updates that were computed from the same version apply together: synchronous SGD.

A round opens with its first update and ends once every device that takes part has contributed, or a quorum
of them has, or at a deadline. All take part that are there, or a cohort of them in turn (cohort.py). Whoever
comes later starts again from the version that it made.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.coordination.coordinator import Apply, Push
from edgeflock.server.descent import MEAN, Gathered, Step, Where
from edgeflock.shared.errors import BadSequence, BaseExpired
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.coordination import CoordinationSettings

_PATIENCE = 10
"""Deadlines that a cohort is waited for of which nothing comes: many, since its devices may be slow."""


@dataclass(frozen=True, slots=True)
class Ending:
    """When a round ends."""

    quorum: int
    """How many updates are enough; 0: one of each device that takes part."""
    deadline: float
    """Seconds after its first update when it ends in any case."""

    def is_enough(self, contributed: Set[int], expected: Set[int]) -> bool:
        """Whether a round need not wait any longer to which these devices have contributed."""
        return len(contributed) >= self.quorum if self.quorum else expected <= contributed


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

    def __init__(
        self, ending: Ending, layout: Layout, aggregate: str = MEAN, cohort: Cohort | None = None
    ) -> None:
        """`aggregate` says how updates come together (descent/aggregates.py), `cohort` who takes part;
        all, if it is None.
        """
        self._ending = ending
        self._layout = layout
        self._aggregate = aggregate
        self._present: set[int] = set()
        self._open: _Open | None = None
        self._cohort = cohort
        self._since: float | None = None
        """When the cohort was first seen of which nothing has come yet."""

    @classmethod
    def of(cls, settings: CoordinationSettings, layout: Layout) -> "Rounds":
        cohort = Cohort(settings.cohort, settings.turns) if settings.cohort else None
        return cls(Ending(settings.quorum, settings.deadline), layout, settings.aggregate, cohort)

    @property
    def turns(self) -> Cohort | None:
        return self._cohort

    @property
    def held(self) -> Mapping[int, Push]:
        return self._open.pushes if self._open is not None else {}

    @property
    def gathered(self) -> Gathered | None:
        return None if self._open is None else self._open.gathered

    @property
    def due(self) -> float | None:
        if self._open is not None:
            return self._open.due
        return None if self._since is None else self._since + _PATIENCE * self._ending.deadline

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Gathered; `tick` says when the round is over, so that all that came at once is in it.

        Raises BaseExpired if it is others' turn: by a few in each round that nobody called a handful of
        devices would outvote the cohort.
        """
        if self._cohort is not None and not self._cohort.may_give(push.device):
            raise BaseExpired("it is others' turn in this round; pull again: the answer comes in yours")
        if self._open is None:
            self._since = None
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
        if self._cohort is not None:
            self._cohort.arrived(device)

    def left(self, device: int) -> None:
        """Who has given already makes room with the end of the round: another one in its place would make
        the round longer, and have one more say in it.
        """
        self._present.discard(device)
        if self._cohort is not None and device not in self.held:
            self._cohort.left(device)

    def give_up(self) -> list[Push]:
        pushes = self.held
        self._open = None
        self._make_room(pushes)
        return list(pushes.values())

    def tick(self, now: float) -> Apply | None:
        over, cohort = self._open, self._cohort
        if over is None:
            self._look(now)
            return None
        expected = self._present if cohort is None else cohort.members
        if now < over.due and not self._ending.is_enough(over.pushes.keys(), expected):
            return None
        self._open = None
        if cohort is not None:
            cohort.went_by(cohort.members - over.pushes.keys() if now >= over.due else ())
            self._make_room(over.pushes)
            self._look(now)  # nothing else may ever come
        return Apply(tuple(zip(over.pushes.values(), over.touched, strict=True)), over.gathered)

    def _make_room(self, gave: Mapping[int, Push]) -> None:
        """Who left meanwhile of those who gave does now."""
        if self._cohort is not None:
            for device in gave.keys() - self._present:
                self._cohort.left(device)

    def _look(self, now: float) -> None:
        """Whoever takes part and gives nothing makes room in the end, as it would at the end of a round."""
        if (cohort := self._cohort) is None or not cohort.members:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now >= self._since + _PATIENCE * self._ending.deadline:
            self._since = now
            cohort.make_room()
