"""The fewest seconds until enough distinct tasks are done, and which device computes which.

Algorithm 1 of the paper gives each next result to the worker that has it first, and any task to any worker.
Here a device computes only what it holds. A result counts if the tasks counted so far can be reassigned to
make room for it (an augmenting path). Results that can be assigned together are the independent sets of a
matroid. So the greedy choice, each result as soon as it is possible, is optimal, as Algorithm 1 is. If every
worker holds every task, the two are the same.
"""

import heapq
from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple


class WorkerLoad(NamedTuple):
    """The work that one device can still do in a round."""

    tasks: Collection[int]
    """Tasks that it may compute and that are not done."""
    limit: int
    """How many of them it may begin from now on."""
    pace: float
    """Seconds that a task takes it."""
    busy: float = 0.0
    """Seconds until its current task is done. 0: it waits for a task."""
    current: int | None = None
    """Its current task, if that still counts."""


class Slot(NamedTuple):
    """A result that a worker has at a time."""

    time: float
    worker: int
    fixed: bool
    """Whether it is the result of the worker's current task."""


def plan(workers: Mapping[int, WorkerLoad], wanted: int) -> dict[int, Slot]:
    """Return task -> the worker and time of its result, so that `wanted` results are there soonest.

    There are fewer if no more are possible. The time of the last one is minimal.
    """
    chosen: dict[int, Slot] = {}
    coming: list[tuple[float, int, int]] = []
    for device, worker in workers.items():
        if worker.busy:
            coming.append((worker.busy, device, 0))
        elif worker.limit:
            coming.append((worker.pace, device, 1))
    heapq.heapify(coming)
    while coming and len(chosen) < wanted:
        time, device, number = heapq.heappop(coming)
        worker = workers[device]
        slot = Slot(time, device, fixed=number == 0)
        # A device's tasks do not change: if one of its results finds no room, later ones do not either.
        useful = _assign(slot, [worker.current] if number == 0 else worker.tasks, workers, chosen)
        if (useful or number == 0) and number < worker.limit:
            heapq.heappush(coming, (time + worker.pace, device, number + 1))
    return chosen


def _assign(
    slot: Slot,
    tasks: Collection[int | None],
    workers: Mapping[int, WorkerLoad],
    chosen: dict[int, Slot],
) -> bool:
    """Count `slot` for one of `tasks`, moving other slots if necessary. Return whether it fits."""
    origins: dict[int, int | None] = {}
    """task -> the task whose slot would take it instead. None: the new slot takes it."""
    queue: deque[int] = deque()
    _enqueue(None, tasks, origins, queue)
    while queue:
        task = queue.popleft()
        if (taken := chosen.get(task)) is None:
            _shift(task, slot, origins, chosen)
            return True
        if not taken.fixed:
            _enqueue(task, workers[taken.worker].tasks, origins, queue)
    return False


def _enqueue(
    origin: int | None, tasks: Collection[int | None], origins: dict[int, int | None], queue: deque[int]
) -> None:
    for task in tasks:
        if task is not None and task not in origins:
            origins[task] = origin
            queue.append(task)


def _shift(task: int, slot: Slot, origins: Mapping[int, int | None], chosen: dict[int, Slot]) -> None:
    """Shift the slots along the path to the free `task` by one. The new slot takes the path's first task."""
    while (origin := origins[task]) is not None:
        chosen[task] = chosen[origin]
        task = origin
    chosen[task] = slot
