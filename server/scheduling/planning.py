"""The fewest seconds in which enough distinct tasks can be there, and who computes which.

Algorithm 1 of the paper gives each next result to the worker that has it first. It may give any task to any
worker. Here a device computes only what it holds: a result counts if the tasks counted so far can be dealt
out anew to make room for it (an augmenting path). Results that can be dealt out together are the
independent sets of a matroid, so taking each as soon as it is possible is best, as Algorithm 1 is; where
everybody holds everything the two are the same.
"""

import heapq
from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple


class WorkerLoad(NamedTuple):
    """What one device can still do in a round."""

    tasks: Collection[int]
    """That it may compute and nobody has."""
    most: int
    """How many of them it may begin from now on."""
    pace: float
    """Seconds that one takes it."""
    free: float = 0.0
    """Seconds until it is done with what it computes now; 0: it waits for a task."""
    at: int | None = None
    """What it computes now, if that still counts."""


class Slot(NamedTuple):
    """A result that a worker has at a time."""

    time: float
    worker: int
    fixed: bool
    """Whether it is of the task that the worker computes now."""


def plan(workers: Mapping[int, WorkerLoad], wanted: int) -> dict[int, Slot]:
    """task -> whose result of it counts, and when, so that `wanted` of them are there soonest.

    Fewer, if there are no more. The time of the last is the least that there can be.
    """
    chosen: dict[int, Slot] = {}
    coming: list[tuple[float, int, int]] = []
    for device, worker in workers.items():
        if worker.free:
            coming.append((worker.free, device, 0))
        elif worker.most:
            coming.append((worker.pace, device, 1))
    heapq.heapify(coming)
    while coming and len(chosen) < wanted:
        time, device, number = heapq.heappop(coming)
        worker = workers[device]
        slot = Slot(time, device, fixed=number == 0)
        # What a device holds stays the same: if one result of it finds no room, later ones do not either.
        useful = _make_room(slot, [worker.at] if number == 0 else worker.tasks, workers, chosen)
        if (useful or number == 0) and number < worker.most:
            heapq.heappush(coming, (time + worker.pace, device, number + 1))
    return chosen


def _make_room(
    slot: Slot,
    tasks: Collection[int | None],
    workers: Mapping[int, WorkerLoad],
    chosen: dict[int, Slot],
) -> bool:
    """Whether `slot` can count for one of `tasks`, if others count for others; then they do."""
    came: dict[int, int | None] = {}
    """task -> the one whose slot would take it instead; None: the new one."""
    line: deque[int] = deque()
    _reach(None, tasks, came, line)
    while line:
        task = line.popleft()
        if (taken := chosen.get(task)) is None:
            _shift(task, slot, came, chosen)
            return True
        if not taken.fixed:
            _reach(task, workers[taken.worker].tasks, came, line)
    return False


def _reach(
    origin: int | None, tasks: Collection[int | None], came: dict[int, int | None], line: deque[int]
) -> None:
    for task in tasks:
        if task is not None and task not in came:
            came[task] = origin
            line.append(task)


def _shift(task: int, slot: Slot, came: Mapping[int, int | None], chosen: dict[int, Slot]) -> None:
    """Along the path to the free `task`, each slot moves on by one; the new one takes what the first had."""
    while (origin := came[task]) is not None:
        chosen[task] = chosen[origin]
        task = origin
    chosen[task] = slot
