"""Rounds of tasks: a round takes one update of each data shard, from the first device that computes it.

server/scheduling decides which of its data shards a device computes next. A round ends with results of k
distinct data shards, or of all data shards that present devices hold, or at its deadline. A later result of
the same data shard is counted and not applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgeflock.server.coordination.coordinator import Apply, Push
from edgeflock.server.descent import MEAN, Gathered, Index, Step
from edgeflock.server.scheduling import Assignments
from edgeflock.shared.errors import AlreadyComputed, NoSuchTask
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.frames import TaskRoundStatus
from edgeflock.shared.settings.coordination import CoordinationSettings


@dataclass(slots=True)
class _Open:
    """The open round."""

    due: float
    """When the round ends in any case."""
    gathered: Gathered
    pushes: dict[tuple[int, int], Push] = field(default_factory=dict)
    """(device, sequence number) -> the update, in order of arrival."""
    touched: list[Index] = field(default_factory=list)
    """The parameters that each update touches, in the same order."""


class TaskRounds:
    """The coordinator of rounds with tasks."""

    turns = None

    def __init__(
        self, assignments: Assignments, deadline: float, layout: Layout, aggregate: str = MEAN
    ) -> None:
        self._assignments = assignments
        self._deadline = deadline
        self._layout = layout
        self._aggregate = aggregate
        self._numbers: dict[str, int] = {}
        """Each data shard that a device has ever held -> its task number, in order of arrival."""
        self._holds: dict[int, tuple[int, ...]] = {}
        self._duplicates = 0
        self._now = 0.0
        """The time of the last `tick`."""
        self._open: _Open | None = None

    @classmethod
    def of(cls, settings: CoordinationSettings, layout: Layout) -> "TaskRounds":
        assignments = Assignments(settings.order, settings.tasks, settings.distinct)
        return cls(assignments, settings.deadline, layout, settings.aggregate)

    @property
    def tasks(self) -> "TaskRounds":
        return self

    def holds(self, device: int, shards: Sequence[str]) -> None:
        self._holds[device] = tuple(self._numbers.setdefault(name, len(self._numbers)) for name in shards)

    def hand_out(self, device: int, now: float) -> int | None:
        task = self._assignments.hand_out(device, now)
        return None if task is None else self._holds[device].index(task)

    def standing(self) -> TaskRoundStatus:
        assignments = self._assignments
        return TaskRoundStatus(
            len(assignments.held), len(assignments.finished), assignments.wanted, self._duplicates
        )

    @property
    def held(self) -> Mapping[int, Push]:
        """device -> the last of its updates that are held."""
        return {} if self._open is None else {device: push for (device, _), push in self._open.pushes.items()}

    def waiting(self, push: Push) -> Push | None:
        return None if self._open is None else self._open.pushes.get((push.device, push.update.sequence))

    @property
    def gathered(self) -> Gathered | None:
        return None if self._open is None else self._open.gathered

    @property
    def due(self) -> float | None:
        times = [self._assignments.look, None if self._open is None else self._open.due]
        return min((time for time in times if time is not None), default=None)

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Gather the update if it is the first of its data shard."""
        holds, position = self._holds.get(push.device, ()), push.update.task
        if position is None or position >= len(holds):
            raise NoSuchTask(
                f"update {push.update.sequence} is of shard {position}; the device holds {len(holds)} "
                "(client.shards), and is told which to compute"
            )
        if not self._assignments.done(push.device, holds[position], now):
            self._duplicates += 1
            raise AlreadyComputed("another device had computed this shard before")
        if self._open is None:
            self._open = _Open(now + self._deadline, Gathered(self._layout, self._aggregate))
        self._open.gathered.add(step)
        self._open.pushes[push.device, push.update.sequence] = push
        self._open.touched.append(step.indices)
        return None

    def arrived(self, device: int) -> None:
        self._assignments.arrived(device, self._holds.get(device, ()))

    def left(self, device: int) -> None:
        self._assignments.left(device)

    def give_up(self) -> list[Push]:
        pushes = [] if self._open is None else list(self._open.pushes.values())
        self._open = None
        self._assignments.end(self._now)
        return pushes

    def tick(self, now: float) -> Apply | None:
        self._now = now
        look, over = self._assignments.look, self._open
        if look is not None and now >= look:
            self._assignments.look = None  # this time has passed and must not wake the server again
        if over is None or (now < over.due and self._assignments.wanted):
            return None
        self._open = None
        self._assignments.end(now)
        return Apply(tuple(zip(over.pushes.values(), over.touched, strict=True)), over.gathered)
