"""Rounds of tasks: a round takes one update of each data shard, from the first device that computes it.

server/scheduling decides which of its data shards a device computes next. A round ends with results of k
distinct data shards, or of all data shards that present devices hold, or at its deadline. A later result of
the same data shard is counted and not applied.
"""

from collections.abc import Mapping, Sequence

from edgeflock.server.coordination.coordinator import Apply, OpenRound, Push
from edgeflock.server.descent import MEAN, Gathered, Step
from edgeflock.server.scheduling import Assignments
from edgeflock.shared.errors import AlreadyComputed, NoSuchTask
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.frames import TaskRoundStatus
from edgeflock.shared.settings.coordination import CoordinationSettings


class TaskRounds:
    """The coordinator of tasks mode."""

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
        self._shards: dict[int, tuple[int, ...]] = {}
        self._duplicates = 0
        self._now = 0.0
        """The time of the last `tick`."""
        self._open: OpenRound[tuple[int, int]] | None = None
        """Its keys are device and sequence number."""

    @classmethod
    def from_settings(cls, settings: CoordinationSettings, layout: Layout) -> "TaskRounds":
        assignments = Assignments(settings.tasks, settings.distinct)
        return cls(assignments, settings.deadline, layout, settings.aggregate)

    @property
    def tasks(self) -> "TaskRounds":
        return self

    def set_shards(self, device: int, shards: Sequence[str]) -> None:
        self._shards[device] = tuple(self._numbers.setdefault(name, len(self._numbers)) for name in shards)

    def assign(self, device: int, now: float) -> int | None:
        task = self._assignments.assign(device, now)
        return None if task is None else self._shards[device].index(task)

    def status(self) -> TaskRoundStatus:
        assignments = self._assignments
        held, finished = len(assignments.held_tasks), len(assignments.finished)
        return TaskRoundStatus(held, finished, assignments.missing, self._duplicates)

    @property
    def held_updates(self) -> Mapping[int, Push]:
        """Device -> the last of its updates that are held."""
        return {} if self._open is None else {device: push for (device, _), push in self._open.pushes.items()}

    def find_held(self, push: Push) -> Push | None:
        return None if self._open is None else self._open.pushes.get((push.device, push.update.sequence))

    @property
    def round_sum(self) -> Gathered | None:
        return None if self._open is None else self._open.gathered

    @property
    def due(self) -> float | None:
        times = [self._assignments.recheck_time, None if self._open is None else self._open.due]
        return min((time for time in times if time is not None), default=None)

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Gather the update if it is the first of its data shard."""
        shards, position = self._shards.get(push.device, ()), push.update.task
        if position is None or position >= len(shards):
            raise NoSuchTask(
                f"update {push.update.sequence} is of shard {position}; the device holds {len(shards)} "
                "(client.shards); compute the one that the server assigns"
            )
        if not self._assignments.finish(push.device, shards[position], now):
            self._duplicates += 1
            raise AlreadyComputed("another device had computed this shard before")
        if self._open is None:
            self._open = OpenRound(now + self._deadline, Gathered(self._layout, self._aggregate))
        self._open.add((push.device, push.update.sequence), push, step)
        return None

    def add_device(self, device: int) -> None:
        self._assignments.add_device(device, self._shards.get(device, ()))

    def remove_device(self, device: int) -> None:
        self._assignments.remove_device(device)

    def discard(self) -> list[Push]:
        pushes = [] if self._open is None else list(self._open.pushes.values())
        self._open = None
        self._assignments.end(self._now)
        return pushes

    def tick(self, now: float) -> Apply | None:
        self._now = now
        recheck, ended = self._assignments.recheck_time, self._open
        if recheck is not None and now >= recheck:
            self._assignments.recheck_time = None  # this time has passed and must not wake the server again
        if ended is None or (now < ended.due and self._assignments.missing):
            return None
        self._open = None
        self._assignments.end(now)
        return ended.end()
