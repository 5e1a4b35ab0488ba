"""Rounds of tasks: which device holds, computes and has done which task, and which one it computes next.

    arrived, left    a device begins to take part, with the tasks that it holds, or stops
    hand_out         a device asks for its next task; None while there is none for it
    done             a device has computed a task; returns whether the result is the first
    end              the round is over

A device computes at most r tasks a round, each once, and none that is done already. An entry of ORDERS
chooses the next one: by a column of a task-order matrix, or by the best plan from all measured speeds. Pure:
times are arguments.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeflock.server.scheduling.planning import Slot, WorkerLoad, plan
from edgeflock.server.scheduling.speeds import Speeds

_SOON = 0.25
"""The fraction of its next task that a device waits rather than compute another device's current task."""

_PATIENCE = 0.25
"""The time until late devices are checked again, as a fraction of the waiting device's task."""

_LEAST = 1e-3
"""The least seconds of that time."""


@dataclass(slots=True)
class Seat:
    """A device that takes part."""

    holds: tuple[int, ...]
    """Its tasks, in its own order."""
    column: int
    """Its column of the task-order matrix."""
    begun: list[int] = field(default_factory=list)
    """The tasks that it has begun in this round, in order."""
    at: int | None = None
    """The task that it computes now, if any."""
    since: float = 0.0
    """When it began the current task, or became free."""
    waiting: bool = False
    """Whether it has asked, and waits for a task."""
    first: bool = True
    """Whether its current task is its first of a round."""


class Assignments:
    """The tasks of a run, round by round."""

    def __init__(self, order: str, r: int, k: int = 0, seed: int = 0) -> None:
        """Each device computes at most `r` tasks a round; if `r` is 0, all that it holds.

        A round ends with `k` distinct ones; if `k` is 0, all held ones. `seed` is for the random order."""
        self._order = ORDERS[order]
        self._r, self._k = r, k
        self.seats: dict[int, Seat] = {}
        self.speeds = Speeds()
        self.finished: set[int] = set()
        """The tasks of this round that are done."""
        self.random = np.random.default_rng(seed)
        self.look: float | None = None
        """When devices that got no task, though some are open to them, should ask again."""

    @property
    def held(self) -> set[int]:
        """The tasks that at least one device holds."""
        return {task for seat in self.seats.values() for task in seat.holds}

    @property
    def wanted(self) -> int:
        """How many more results this round needs. 0: it is over."""
        can = len(self.finished | self.held)
        return max(0, min(self._k or can, can) - len(self.finished))

    def arrived(self, device: int, holds: Iterable[int]) -> None:
        """Add a device, or restart a known one without a task. Tasks that it began count as begun."""
        tasks = tuple(dict.fromkeys(holds))
        earlier = self.seats.pop(device, None)
        columns = {seat.column for seat in self.seats.values()}
        column = next((task for task in tasks if task not in columns), tasks[0] if tasks else 0)
        self.seats[device] = Seat(tasks, column, earlier.begun if earlier else [])

    def left(self, device: int) -> None:
        """Remove a device. Its results count. Idempotent."""
        self.seats.pop(device, None)

    def hand_out(self, device: int, now: float) -> int | None:
        """The device's next task, or the same one again if it has not computed that.

        None: there is none now, but another device's leaving or the next round may bring one."""
        seat = self.seats.get(device)
        if seat is None:
            return None
        if seat.at is not None:
            if seat.at in seat.begun and seat.at not in self.finished:
                return seat.at
            self.stopped(device, now)
        if not self.wanted or not self.left_to(seat):
            return None
        task = self._order(self, device, now)
        if task is not None:
            seat.first = not seat.begun
            seat.begun.append(task)
            seat.at, seat.since = task, now
        elif self.open_to(seat):
            self.look = min(self._next_late(device, now), self.look or math.inf)
        seat.waiting = task is None
        return task

    def _next_late(self, device: int, now: float) -> float:
        """When to check again, for `device`, whether the current tasks are late."""
        soonest = now + max(_PATIENCE * (self.speeds.expected(device, first=False) or 0.0), _LEAST)
        late = soonest
        for other, seat in self.seats.items():
            if seat.at is not None:
                due = seat.since + (self.speeds.expected(other, first=seat.first) or 0.0)
                late = min(late, due if due > now else soonest)
        return late

    def done(self, device: int, task: int, now: float) -> bool:
        """Note that `device` has computed `task`. Return whether it is the first to do so."""
        seat = self.seats.get(device)
        if seat is not None and seat.at == task:
            self.speeds.observe(device, now - seat.since, first=seat.first)
            seat.at, seat.since = None, now
        is_first = task not in self.finished
        self.finished.add(task)
        return is_first

    def stopped(self, device: int, now: float) -> None:
        """Note that `device` has stopped its current task without finishing it."""
        seat = self.seats.get(device)
        if seat is not None and seat.at is not None:
            self.speeds.observe_unfinished(device, now - seat.since, first=seat.first)
            seat.at, seat.since = None, now

    def end(self, now: float) -> None:
        """Begin the next round. A device that still computes a task of this one continues until it asks."""
        self.finished.clear()
        self.look = None
        for seat in self.seats.values():
            seat.begun.clear()
            if seat.at is None:
                seat.since, seat.waiting = now, False

    def left_to(self, seat: Seat) -> int:
        """How many more tasks the device may begin in this round."""
        return (self._r or len(seat.holds)) - len(seat.begun)

    def open_to(self, seat: Seat) -> list[int]:
        """The tasks that it may begin now: held, not done, not begun before; in its own order."""
        return [task for task in seat.holds if task not in self.finished and task not in seat.begun]


def _cyclic(round: Assignments, device: int, now: float) -> int | None:
    """Equation 3: upwards from the device's column."""
    return _nearest(round, device, 1)


def _staircase(round: Assignments, device: int, now: float) -> int | None:
    """Equation 6: upwards or downwards from the device's column, if that is even or odd."""
    return _nearest(round, device, -1 if round.seats[device].column % 2 else 1)


def _nearest(round: Assignments, device: int, direction: int) -> int | None:
    """The next open task in this direction from the device's column, cyclically over all held tasks."""
    seat = round.seats[device]
    tasks = sorted(round.held)
    place = {task: number for number, task in enumerate(tasks)}
    start = place.get(seat.column, 0)
    return min(
        round.open_to(seat),
        key=lambda task: direction * (place[task] - start) % len(tasks),
        default=None,
    )


def _random(round: Assignments, device: int, now: float) -> int | None:
    """A random open task of the device."""
    tasks = round.open_to(round.seats[device])
    return tasks[int(round.random.integers(len(tasks)))] if tasks else None


def _adaptive(round: Assignments, device: int, now: float) -> int | None:
    """The task that the best plan gives to the device.

    Without one, the task that the plan finishes last, in case its device is late. If that is expected soon,
    the device stays ready for the next round instead, since its result would not be needed.
    """
    seat = round.seats[device]
    tasks = round.open_to(seat)
    if not tasks:
        return None
    workers = {one: _worker(round, one, now, asks=one == device) for one in round.seats}
    chosen = plan(workers, round.wanted)
    own = [task for task, slot in chosen.items() if slot.worker == device and task in tasks]
    if own:
        return min(own, key=lambda task: (_holders(round, task), task))
    last = max(tasks, key=lambda task: (_expected(chosen.get(task)), -task))
    soon = _expected(chosen.get(last)) < _SOON * workers[device].pace
    return None if soon and round.speeds.any_known else last


def _worker(round: Assignments, device: int, now: float, *, asks: bool) -> WorkerLoad:
    seat, speeds = round.seats[device], round.speeds
    known = speeds.expected(device, first=not seat.begun)
    pace = 1.0 if known is None else known
    tasks, most = round.open_to(seat), round.left_to(seat)
    if seat.at is None:
        # A device that is overdue to ask is expected to take as long again.
        return WorkerLoad(tasks, most, pace, 0.0 if asks or seat.waiting else max(0.0, now - seat.since))
    gone = now - seat.since
    at = seat.at if seat.at in seat.begun and seat.at not in round.finished else None
    expected = speeds.expected(device, first=seat.first)
    # A task that is late is expected to take as long again as it has taken.
    whole = max(2 * gone if expected is None or gone > expected else expected, gone + 1e-9)
    return WorkerLoad(tasks, most, pace, whole - gone, at)


def _holders(round: Assignments, task: int) -> int:
    return sum(task in seat.holds for seat in round.seats.values())


def _expected(slot: Slot | None) -> float:
    return float("inf") if slot is None else slot.time


Order = Callable[[Assignments, int, float], int | None]
"""order(round, device, now): the next task of a device that may begin one. None: there is none."""

ORDERS: Mapping[str, Order] = {
    "cyclic": _cyclic,
    "staircase": _staircase,
    "random": _random,
    "adaptive": _adaptive,
}
