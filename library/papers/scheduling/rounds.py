"""Rounds whose order is decided on the way: the server's own scheduler, and times that are given."""

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeflock.papers.scheduling.delays import Times
from edgeflock.server.scheduling import Assignments
from edgeflock.server.scheduling.matrices import Matrix
from edgeflock.server.scheduling.planning import WorkerLoad, plan


def play(
    order: str, holds: Sequence[Sequence[int]], times: Times, r: int, k: int, seed: int = 0
) -> NDArray[np.float64]:
    """Seconds that each round takes: [rounds].

    Worker j holds holds[j], takes times[round, j] for each of its tasks, at most `r`, and stops when the
    round is over. The scheduler knows what it sees and no more.
    """
    assignments = Assignments(order, r, k, seed)
    for worker, tasks in enumerate(holds):
        assignments.add_device(worker, tasks)
    took, clock = [], 0.0
    for paces in times:
        over = _round(assignments, paces, clock)
        took.append(over - clock)
        for worker in range(len(holds)):
            assignments.stop(worker, over)
        assignments.end(over)
        clock = over
    return np.array(took)


def _round(assignments: Assignments, paces: NDArray[np.float64], now: float) -> float:
    """When the round that begins `now` is over."""
    coming: list[tuple[float, int, int]] = []
    waiting: set[int] = set()

    def ask(worker: int) -> None:
        task = assignments.assign(worker, now)
        if task is None:
            waiting.add(worker)
        else:
            waiting.discard(worker)
            heapq.heappush(coming, (now + float(paces[worker]), worker, task))

    for worker in range(len(paces)):
        ask(worker)
    while assignments.missing:
        look = assignments.recheck_time
        if look is not None and look < coming[0][0]:
            now, assignments.recheck_time = look, None
            for worker in sorted(waiting):
                ask(worker)
            continue
        now, worker, task = heapq.heappop(coming)
        assignments.finish(worker, task, now)
        ask(worker)
    return now


def columns(matrix: Matrix) -> list[list[int]]:
    """What each worker of a task-order matrix holds, in its order."""
    return [[int(task) for task in column] for column in matrix.T]


def oracle_seconds(holds: Sequence[Sequence[int]], paces: NDArray[np.float64], r: int, k: int) -> float:
    """Seconds of a round for who knows all paces beforehand: no order with these holdings is faster."""
    workers = {number: WorkerLoad(tasks, r, float(paces[number])) for number, tasks in enumerate(holds)}
    return max(slot.time for slot in plan(workers, k).values())
