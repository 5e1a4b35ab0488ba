"""Rounds of tasks: which device holds, computes and has done which task, and which one it computes next.

    add_device, remove_device    a device begins to take part, with the tasks that it holds, or stops
    assign                       a device asks for its next task; None while there is none for it
    finish                       a device has computed a task; returns whether the result is the first
    end                          the round is over

A device computes at most r tasks a round, each once, and none that is done already. The best plan from all
measured speeds chooses the next one (planning.py). Pure: times are arguments.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from edgeflock.server.scheduling.planning import Slot, Speeds, WorkerLoad, plan

_WAIT_FRACTION = 0.25
"""The fraction of its next task that a device waits rather than compute another device's current task."""

_RECHECK_FRACTION = 0.25
"""The time until late devices are checked again, as a fraction of the waiting device's task."""

_MIN_WAIT = 1e-3
"""The least seconds of that time."""


@dataclass(slots=True)
class Participant:
    """A device that takes part."""

    tasks: tuple[int, ...]
    """Its tasks, in its own order."""
    begun: list[int] = field(default_factory=list)
    """The tasks that it has begun in this round, in order."""
    current: int | None = None
    """The task that it computes now, if any."""
    start: float = 0.0
    """When it began the current task, or became free."""
    is_waiting: bool = False
    """Whether it has asked, and waits for a task."""
    is_first: bool = True
    """Whether its current task is its first of a round."""


class Assignments:
    """The tasks of a run, round by round."""

    def __init__(self, r: int, k: int = 0) -> None:
        """Each device computes at most `r` tasks a round; if `r` is 0, all that it holds.

        A round ends with `k` distinct ones; if `k` is 0, all held ones.
        """
        self._r, self._k = r, k
        self.participants: dict[int, Participant] = {}
        self.speeds = Speeds()
        self.finished: set[int] = set()
        """The tasks of this round that are done."""
        self.recheck_time: float | None = None
        """When devices that got no task, though some are open to them, should ask again."""

    @property
    def held_tasks(self) -> set[int]:
        """The tasks that at least one device holds."""
        return {task for seat in self.participants.values() for task in seat.tasks}

    @property
    def missing(self) -> int:
        """How many more results this round needs. 0: it is over."""
        can = len(self.finished | self.held_tasks)
        return max(0, min(self._k or can, can) - len(self.finished))

    def add_device(self, device: int, held: Iterable[int]) -> None:
        """Add a device, or restart a known one without a task. Tasks that it began count as begun."""
        tasks = tuple(dict.fromkeys(held))
        earlier = self.participants.pop(device, None)
        self.participants[device] = Participant(tasks, earlier.begun if earlier else [])

    def remove_device(self, device: int) -> None:
        """Remove a device. Its results count. Idempotent."""
        self.participants.pop(device, None)

    def assign(self, device: int, now: float) -> int | None:
        """The device's next task, or the same one again if it has not computed that.

        None: there is none now, but another device's leaving or the next round may bring one.
        """
        seat = self.participants.get(device)
        if seat is None:
            return None
        if seat.current is not None:
            if seat.current in seat.begun and seat.current not in self.finished:
                return seat.current
            self.stop(device, now)
        if not self.missing or not self.remaining(seat):
            return None
        task = _next_task(self, device, now)
        if task is not None:
            seat.is_first = not seat.begun
            seat.begun.append(task)
            seat.current, seat.start = task, now
        elif self.open_tasks(seat):
            self.recheck_time = min(self._next_late(device, now), self.recheck_time or math.inf)
        seat.is_waiting = task is None
        return task

    def _next_late(self, device: int, now: float) -> float:
        """When to check again, for `device`, whether the current tasks are late."""
        soonest = now + max(_RECHECK_FRACTION * (self.speeds.predict(device, first=False) or 0.0), _MIN_WAIT)
        late = soonest
        for other, seat in self.participants.items():
            if seat.current is not None:
                due = seat.start + (self.speeds.predict(other, first=seat.is_first) or 0.0)
                late = min(late, due if due > now else soonest)
        return late

    def finish(self, device: int, task: int, now: float) -> bool:
        """Note that `device` has computed `task`. Return whether it is the first to do so."""
        seat = self.participants.get(device)
        if seat is not None and seat.current == task:
            self.speeds.observe(device, now - seat.start, first=seat.is_first)
            seat.current, seat.start = None, now
        is_first = task not in self.finished
        self.finished.add(task)
        return is_first

    def stop(self, device: int, now: float) -> None:
        """Note that `device` has stopped its current task without finishing it."""
        seat = self.participants.get(device)
        if seat is not None and seat.current is not None:
            self.speeds.observe_unfinished(device, now - seat.start, first=seat.is_first)
            seat.current, seat.start = None, now

    def end(self, now: float) -> None:
        """Begin the next round. A device that still computes a task of this one continues until it asks."""
        self.finished.clear()
        self.recheck_time = None
        for seat in self.participants.values():
            seat.begun.clear()
            if seat.current is None:
                seat.start, seat.is_waiting = now, False

    def remaining(self, seat: Participant) -> int:
        """How many more tasks the device may begin in this round."""
        return (self._r or len(seat.tasks)) - len(seat.begun)

    def open_tasks(self, seat: Participant) -> list[int]:
        """The tasks that it may begin now: held, not done, not begun before; in its own order."""
        return [task for task in seat.tasks if task not in self.finished and task not in seat.begun]


def _next_task(round: Assignments, device: int, now: float) -> int | None:
    """The task that the best plan gives to the device.

    Without one, the task that the plan finishes last, in case its device is late. If that is expected soon,
    the device stays ready for the next round instead, since its result would not be needed.
    """
    seat = round.participants[device]
    tasks = round.open_tasks(seat)
    if not tasks:
        return None
    workers = {one: _worker_load(round, one, now, asks=one == device) for one in round.participants}
    chosen = plan(workers, round.missing)
    own = [task for task, slot in chosen.items() if slot.worker == device and task in tasks]
    if own:
        return min(own, key=lambda task: (_holders(round, task), task))
    last = max(tasks, key=lambda task: (_expected(chosen.get(task)), -task))
    soon = _expected(chosen.get(last)) < _WAIT_FRACTION * workers[device].pace
    return None if soon and round.speeds.has_any else last


def _worker_load(round: Assignments, device: int, now: float, *, asks: bool) -> WorkerLoad:
    seat, speeds = round.participants[device], round.speeds
    predicted = speeds.predict(device, first=not seat.begun)
    pace = 1.0 if predicted is None else predicted
    tasks, limit = round.open_tasks(seat), round.remaining(seat)
    if seat.current is None:
        # A device that is overdue to ask is expected to take as long again.
        return WorkerLoad(tasks, limit, pace, 0.0 if asks or seat.is_waiting else max(0.0, now - seat.start))
    elapsed = now - seat.start
    current = seat.current if seat.current in seat.begun and seat.current not in round.finished else None
    expected = speeds.predict(device, first=seat.is_first)
    # A task that is late is expected to take as long again as it has taken.
    whole = max(2 * elapsed if expected is None or elapsed > expected else expected, elapsed + 1e-9)
    return WorkerLoad(tasks, limit, pace, whole - elapsed, current)


def _holders(round: Assignments, task: int) -> int:
    return sum(task in seat.tasks for seat in round.participants.values())


def _expected(slot: Slot | None) -> float:
    return float("inf") if slot is None else slot.time
