"""What is looked at: the paper's Figure 1, fewer than all results, and an order decided on the way.

The paper draws its workers once, and does not say which it drew. Here they are drawn several times: a table
gives the median and the range over the draws, a figure the draw whose staircase gains the median over RA.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from edgeflock.papers.scheduling.completion import (
    SCENARIOS,
    Scenario,
    ShiftedExponential,
    Times,
    average_completion,
    coded_multi_message,
    completion,
    lower_bound,
    polynomially_coded,
    random_completion,
)
from edgeflock.papers.scheduling.matrices import Matrix, cyclic, staircase
from edgeflock.server.scheduling import Assignments
from edgeflock.server.scheduling.planning import WorkerLoad, plan


def play(holds: Sequence[Sequence[int]], times: Times, r: int, k: int) -> NDArray[np.float64]:
    """Seconds that each round takes: [rounds].

    Worker j holds holds[j], takes times[round, j] for each of its tasks, at most `r`, and stops when the
    round is over. The scheduler knows what it sees and no more.
    """
    assignments = Assignments(r, k)
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


SCHEMES = ("PC", "PCMM", "RA", "CS", "SS", "lower bound")
WORLDS = ("as before", "changing", "independent")
LOADS = (3, 5, 10)
"""Values of r for orders that are decided during a round."""


@dataclass(frozen=True, slots=True)
class SchedulingScale:
    draws: int
    """Draws of the workers."""
    samples: int
    """Rounds of a Monte Carlo mean."""
    rounds: int
    """Rounds played for each draw and order."""


FULL = SchedulingScale(draws=40, samples=40_000, rounds=200)
QUICK = SchedulingScale(draws=8, samples=10_000, rounds=40)

Averages = dict[str, list[float | None]]
"""scheme -> its mean completion time at each r or k; None where it is not defined."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What one draw of the workers comes to."""

    by_load: Averages
    """r = 1 .. n, k = n."""
    by_target: dict[int, Averages]
    """r -> k = 1 .. n."""

    @property
    def gain(self) -> float:
        """What SS takes less than RA at r = n, as a part of RA's."""
        staircase, drawn = self.by_load["SS"][-1], self.by_load["RA"][-1]
        assert staircase is not None
        assert drawn is not None
        return 1 - staircase / drawn

    @property
    def as_good(self) -> int:
        """The smallest r from which on SS takes no longer than RA at r = n."""
        drawn = self.by_load["RA"][-1]
        slower = [r for r, mean in enumerate(self.by_load["SS"], 1) if mean is None or mean > (drawn or 0)]
        return max(slower, default=0) + 1


def figure_1(scenario: Scenario, scale: SchedulingScale, tell: Callable[[str], None]) -> list[Draw]:
    """Each draw of the scenario's workers. CS and SS are exact by equation 2, the others Monte Carlo."""
    drawn = []
    for seed in range(scale.draws):
        random = np.random.default_rng([seed, SCENARIOS.index(scenario)])
        delays = scenario.draw(random)
        times = delays.draw(scale.samples, random)
        n = scenario.n
        loads = [_at(delays, times, r, n, random) for r in range(1, n + 1)]
        targets = {r: _listed([_at(delays, times, r, k, random) for k in range(1, n + 1)]) for r in (3, n)}
        drawn.append(Draw(_listed(loads), targets))
        tell(f"{scenario.name}: workers {seed + 1} of {scale.draws}")
    return drawn


def _at(
    delays: ShiftedExponential, times: Times, r: int, k: int, random: np.random.Generator
) -> dict[str, float | None]:
    """Return scheme -> the mean completion time."""
    n = times.shape[1]
    coded = r >= 2 and k == n
    return {
        "PC": float(polynomially_coded(times, r).mean()) if coded else None,
        "PCMM": float(coded_multi_message(times, r).mean()) if coded else None,
        "RA": float(random_completion(times, r, k, random).mean()) if r == n else None,
        "CS": average_completion(cyclic(n, r), delays, k),
        "SS": average_completion(staircase(n, r), delays, k),
        "lower bound": float(lower_bound(times, r, k).mean()),
    }


def _listed(points: list[dict[str, float | None]]) -> Averages:
    return {scheme: [point[scheme] for point in points] for scheme in SCHEMES}


@dataclass(frozen=True, slots=True)
class CompletionMeans:
    """Mean completion times, k = n, of one world at one r, as multiples of the lower bound's."""

    world: str
    r: int
    ratios: dict[str, float]


def decided(
    scenario: Scenario, scale: SchedulingScale, tell: Callable[[str], None]
) -> Iterator[CompletionMeans]:
    """An order that is decided on the way against fixed ones, on the same times.

    "everywhere": every worker holds all tasks and computes at most r of them a round, as the lower bound
    may have it. "cyclic": it holds the r of its column of the cyclic matrix, and "least" is what that
    leaves possible for who knows all times beforehand.
    """
    n = scenario.n
    everywhere = [[(worker + step) % n for step in range(n)] for worker in range(n)]
    for world in WORLDS:
        # Where nothing changes, one round says as much as many: there are more draws of the workers instead.
        draws, rounds = (scale.draws, 4) if world == "as before" else (max(2, scale.draws // 4), scale.rounds)
        for r in LOADS:
            found: dict[str, list[float]] = {}
            for seed in range(draws):
                random = np.random.default_rng([seed, SCENARIOS.index(scenario), 1])
                times = times_of(world, scenario.draw(random), rounds, random)
                holds, bound = columns(cyclic(n, r)), lower_bound(times, r, n)
                seconds = {
                    "adaptive, everywhere": play(everywhere, times, r, n),
                    "adaptive, cyclic": play(holds, times, r, n),
                    "least, cyclic": np.array([oracle_seconds(holds, paces, r, n) for paces in times]),
                    "SS": completion(staircase(n, r), times, n),
                    "CS": completion(cyclic(n, r), times, n),
                }
                if r == n:
                    seconds["RA"] = random_completion(times, n, n, random)
                for name, each in seconds.items():
                    found.setdefault(name, []).append(each[1:].mean() / bound[1:].mean())
            yield CompletionMeans(world, r, {name: fmean(ratios) for name, ratios in found.items()})
            tell(f"{scenario.name}: {world}, r = {r}")


CHANGE = 0.1
"""The part of the workers whose speed changes from one round to the next, where speeds change."""


def times_of(world: str, delays: ShiftedExponential, rounds: int, random: np.random.Generator) -> Times:
    """Each worker's time for a task in each round, by how the next round's has to do with this one's."""
    drawn = delays.draw(rounds, random)
    if world == "independent":
        return drawn
    change = random.random(drawn.shape) < (CHANGE if world == "changing" else 0.0)
    change[0] = True
    last = np.maximum.accumulate(np.where(change, np.arange(rounds)[:, None], 0), axis=0)
    return np.take_along_axis(drawn, last, axis=0)
