"""The fewest seconds until enough distinct tasks are done, and which device computes which.

Algorithm 1 of the paper gives each next result to the worker that has it first, and any task to any worker.
Here a device computes only what it holds. A result counts if the tasks counted so far can be reassigned to
make room for it (an augmenting path). Results that can be assigned together are the independent sets of a
matroid. So the greedy choice, each result as soon as it is possible, is optimal, as Algorithm 1 is. If every
worker holds every task, the two are the same.

Predict how long a device's next task takes from how long its last ones took.

All devices together estimate rho, the correlation of a task's logarithmic duration with the one before. There
is one within a round, and one from the last of a round to the first of a later one. The prediction is the
device's mean m, drawn towards its last duration:

    log T = m + rho (log T_last - m)

In the paper all tasks of a round are alike (rho = 1 within). Persistent stragglers are alike between rounds.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
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
    slot: Slot, tasks: Collection[int | None], workers: Mapping[int, WorkerLoad], chosen: dict[int, Slot]
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


_PRIOR = 4.0
"""Pairs of equal durations in the prior. So delays count as correlated until the data show otherwise.
"""

_SPREAD = 0.25
"""The variance of the logarithms of the prior's durations."""

_MIN_SECONDS = 1e-9
"""The least seconds of a duration, so that it has a logarithm."""


@dataclass(slots=True)
class Correlation:
    """Of consecutive durations, over all devices: the moments about each device's own mean."""

    covariance: float = _PRIOR * _SPREAD
    variance: float = _PRIOR * _SPREAD

    def add(self, last: float, now: float) -> None:
        self.covariance += last * now
        self.variance += (last * last + now * now) / 2

    @property
    def rho(self) -> float:
        return max(0.0, self.covariance / self.variance)


@dataclass(slots=True)
class Speeds:
    """The devices' measured speeds. Durations are in seconds of any one clock."""

    within: Correlation = field(default_factory=Correlation)
    between: Correlation = field(default_factory=Correlation)
    _speeds: dict[int, "_Speed"] = field(default_factory=dict)

    def observe(self, device: int, seconds: float, *, first: bool) -> None:
        """Add a task's duration. `first`: it was the device's first of a round."""
        now = math.log(max(seconds, _MIN_SECONDS))
        speed = self._speeds.setdefault(device, _Speed(now))
        if speed.count:
            pair = self.between if first else self.within
            pair.add(speed.last - speed.mean, now - speed.mean)
        speed.add(now)

    def observe_unfinished(self, device: int, seconds: float, *, first: bool) -> None:
        """Add a task that was stopped after so many seconds.

        It counts as twice that if more than expected: the time so far is the best guess of the rest.
        """
        expected = self.predict(device, first=first)
        if expected is None or expected < seconds:
            self.observe(device, 2 * seconds, first=first)

    @property
    def has_any(self) -> bool:
        """Whether any duration is known."""
        return bool(self._speeds)

    def predict(self, device: int, *, first: bool) -> float | None:
        """Seconds that the device's next task takes.

        The others' mean if none of its own is known; None if none at all is.
        """
        speed = self._speeds.get(device)
        if speed is not None:
            rho = (self.between if first else self.within).rho
            return math.exp(speed.mean + rho * (speed.last - speed.mean))
        if not self._speeds:
            return None
        return math.exp(sum(one.mean for one in self._speeds.values()) / len(self._speeds))


_MEMORY = 0.1
"""The weight of the newest duration in the mean, once there are many."""


@dataclass(slots=True)
class _Speed:
    """The speed of one device, in logarithms of seconds."""

    last: float
    mean: float = 0.0
    count: int = 0

    def add(self, now: float) -> None:
        self.count += 1
        self.mean += max(1 / self.count, _MEMORY) * (now - self.mean)
        self.last = now
