"""Rounds of tasks: who holds what, what is done, who is at what; and who computes what next.

    arrived, left    a device takes part, with the tasks that it holds, or does no longer
    hand_out         a device asks: its next task, or None while there is nothing for it
    done             it has computed one: whether that is the first result of it
    end              the round is over

A device computes at most r tasks a round, none that somebody has by then, each once. In which order, an
entry of ORDERS says: a column of a task-order matrix, or what is best by all that is known. Pure: times are
arguments.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edgeflock.server.scheduling.planning import Slot, WorkerLoad, plan
from edgeflock.server.scheduling.speeds import Speeds

_SOON = 0.25
"""The part of its own next task for which a device waits rather than compute what another one is at."""

_PATIENCE = 0.25
"""How long until it is looked at again who is late, as a part of the task of who waits for that."""

_LEAST = 1e-3
"""Seconds; and no sooner."""


@dataclass(slots=True)
class Seat:
    """A device that takes part."""

    holds: tuple[int, ...]
    """Its tasks, in its own order."""
    column: int
    """Of the task-order matrix."""
    begun: list[int] = field(default_factory=list)
    """What it has begun in this round, in order."""
    at: int | None = None
    """What it computes now, if anything."""
    since: float = 0.0
    """When it began that, or has been without a task."""
    waiting: bool = False
    """Whether it has asked, and is told as soon as there is something."""
    first: bool = True
    """Whether what it computes now is its first task of a round."""


class Assignments:
    """The tasks of a run, round by round."""

    def __init__(self, order: str, r: int, k: int = 0, seed: int = 0) -> None:
        """Each device computes at most `r` tasks a round, all that it holds if 0. A round has enough with
        `k` distinct ones; with all that anybody holds if 0. `seed` is what a random order is drawn from.
        """
        self._order = ORDERS[order]
        self._r, self._k = r, k
        self.seats: dict[int, Seat] = {}
        self.speeds = Speeds()
        self.finished: set[int] = set()
        """The tasks of this round that somebody has computed."""
        self.random = np.random.default_rng(seed)
        self.look: float | None = None
        """When those who got nothing, though there was something open to them, should ask again."""

    @property
    def held(self) -> set[int]:
        """The tasks that somebody holds."""
        return {task for seat in self.seats.values() for task in seat.holds}

    @property
    def wanted(self) -> int:
        """How many more results this round wants; 0: it is over."""
        can = len(self.finished | self.held)
        return max(0, min(self._k or can, can) - len(self.finished))

    def arrived(self, device: int, holds: Iterable[int]) -> None:
        """Told again, it is here anew, at nothing; what it had begun of the round counts as begun."""
        tasks = tuple(dict.fromkeys(holds))
        earlier = self.seats.pop(device, None)
        columns = {seat.column for seat in self.seats.values()}
        column = next((task for task in tasks if task not in columns), tasks[0] if tasks else 0)
        self.seats[device] = Seat(tasks, column, earlier.begun if earlier else [])

    def left(self, device: int) -> None:
        """What it has computed counts. Told again, it changes nothing."""
        self.seats.pop(device, None)

    def hand_out(self, device: int, now: float) -> int | None:
        """The device's next task; the same again if it has not computed that. None: there is nothing for it
        now, but there may be once another device has left, or with the next round.
        """
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
        """When to look again whether those who compute do so as fast as expected, on behalf of `device`."""
        soonest = now + max(_PATIENCE * (self.speeds.expected(device, first=False) or 0.0), _LEAST)
        late = soonest
        for other, seat in self.seats.items():
            if seat.at is not None:
                due = seat.since + (self.speeds.expected(other, first=seat.first) or 0.0)
                late = min(late, due if due > now else soonest)
        return late

    def done(self, device: int, task: int, now: float) -> bool:
        """`device` has computed `task`; whether it is the first that has."""
        seat = self.seats.get(device)
        if seat is not None and seat.at == task:
            self.speeds.observe(device, now - seat.since, first=seat.first)
            seat.at, seat.since = None, now
        is_first = task not in self.finished
        self.finished.add(task)
        return is_first

    def stopped(self, device: int, now: float) -> None:
        """`device` computes no longer what it was at, and has not finished it."""
        seat = self.seats.get(device)
        if seat is not None and seat.at is not None:
            self.speeds.observe_unfinished(device, now - seat.since, first=seat.first)
            seat.at, seat.since = None, now

    def end(self, now: float) -> None:
        """The next round begins. Whoever is still at a task of this one is, until it asks again."""
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
        """What it may begin now: held, computed by nobody, not begun before; in its own order."""
        return [task for task in seat.holds if task not in self.finished and task not in seat.begun]


def _cyclic(round: Assignments, device: int, now: float) -> int | None:
    """Equation 3: up from the device's column."""
    return _nearest(round, device, 1)


def _staircase(round: Assignments, device: int, now: float) -> int | None:
    """Equation 6: up or down from the device's column, by whether that is even."""
    return _nearest(round, device, -1 if round.seats[device].column % 2 else 1)


def _nearest(round: Assignments, device: int, direction: int) -> int | None:
    """The next open task in this direction from the device's column, around all that anybody holds."""
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
    """Any open task that the device holds."""
    tasks = round.open_to(round.seats[device])
    return tasks[int(round.random.integers(len(tasks)))] if tasks else None


def _adaptive(round: Assignments, device: int, now: float) -> int | None:
    """What the best plan by all that is known has the device do.

    If that is nothing: what the plan has last, in case it comes later than it should. But not if that is
    expected soon: then the device is better ready for the next round than busy with what nobody needs.
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
        # One that has been expected to ask for some time will take as long again.
        return WorkerLoad(tasks, most, pace, 0.0 if asks or seat.waiting else max(0.0, now - seat.since))
    gone = now - seat.since
    at = seat.at if seat.at in seat.begun and seat.at not in round.finished else None
    expected = speeds.expected(device, first=seat.first)
    # One that is late by all that is known will need as long again as it has taken.
    whole = max(2 * gone if expected is None or gone > expected else expected, gone + 1e-9)
    return WorkerLoad(tasks, most, pace, whole - gone, at)


def _holders(round: Assignments, task: int) -> int:
    return sum(task in seat.holds for seat in round.seats.values())


def _expected(slot: Slot | None) -> float:
    return float("inf") if slot is None else slot.time


Order = Callable[[Assignments, int, float], int | None]
"""order(round, device, now): what the device, which may begin a task, is to begin; None: there is nothing."""

ORDERS: Mapping[str, Order] = {
    "cyclic": _cyclic,
    "staircase": _staircase,
    "random": _random,
    "adaptive": _adaptive,
}
