"""The best plan: Algorithm 1 where everybody holds everything, and by trying all where they do not."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.papers.scheduling.completion import lower_bound
from edgeflock.server.scheduling.planning import Slot, WorkerLoad, plan

PACES = st.lists(st.floats(0.1, 10), min_size=1, max_size=6)


@given(PACES, st.data())
def test_with_everything_everywhere_it_is_algorithm_1(paces: list[float], data: st.DataObject) -> None:
    n = len(paces)
    r, k = data.draw(st.integers(1, n)), data.draw(st.integers(1, n))
    chosen = plan({j: WorkerLoad(range(n), r, pace) for j, pace in enumerate(paces)}, k)
    assert len(chosen) == k
    assert max(slot.time for slot in chosen.values()) == lower_bound(np.array([paces]), r, k)[0]


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 3)), st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=3
    ),
    st.integers(1, 4),
)
@settings(max_examples=300)
def test_no_other_choice_is_faster(found: list[tuple[set[int], int, int]], wanted: int) -> None:
    workers = {j: WorkerLoad(sorted(tasks), most, pace) for j, (tasks, most, pace) in enumerate(found)}
    chosen = plan(workers, wanted)
    results = [(step * w.pace, w.tasks) for w in workers.values() for step in range(1, w.limit + 1)]
    best: dict[int, float] = {0: 0.0}  # how many distinct tasks -> the least time
    for taken in product(*([None, *tasks] for _, tasks in results)):
        tasks = [task for task in taken if task is not None]
        if len(set(tasks)) == len(tasks):
            at = max(
                (time for (time, _), task in zip(results, taken, strict=True) if task is not None), default=0
            )
            best[len(tasks)] = min(best.get(len(tasks), np.inf), at)
    assert len(chosen) == min(wanted, max(best))
    assert max((slot.time for slot in chosen.values()), default=0) == best[len(chosen)]


def test_what_a_worker_is_at_stays_its_own() -> None:
    busy = WorkerLoad(tasks=(1,), limit=1, pace=1.0, busy=5.0, current=0)
    assert plan({7: busy}, 2) == {0: Slot(5.0, 7, True), 1: Slot(6.0, 7, False)}
    # Another one that has nothing but the same is of use only if it is there sooner.
    assert plan({7: busy, 8: WorkerLoad((0,), 1, 2.0)}, 1) == {0: Slot(2.0, 8, False)}


def test_what_does_not_count_any_more_takes_its_time_nevertheless() -> None:
    assert plan({7: WorkerLoad((1,), 1, 1.0, busy=5.0, current=None)}, 1) == {1: Slot(6.0, 7, False)}


def test_there_is_no_plan_without_anybody() -> None:
    assert plan({}, 3) == {}
