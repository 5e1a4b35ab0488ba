"""Rounds of tasks: what is handed out to whom, in which order, and what is done."""

import numpy as np
import pytest

from edgeflock.papers.scheduling.experiments import columns
from edgeflock.papers.scheduling.matrices import Matrix, cyclic
from edgeflock.server.scheduling import Assignments


def hold(matrix: Matrix, r: int = 0, k: int = 0) -> Assignments:
    """Everybody holds the tasks of a column."""
    assignments = Assignments(r, k)
    for worker, tasks in enumerate(columns(matrix)):
        assignments.add_device(worker, tasks)
    return assignments


def _one(assignments: Assignments, worker: int) -> int | None:
    task = assignments.assign(worker, 0.0)
    if task is not None:
        assignments.finish(worker, task, 1.0)
    return task


def test_a_round_has_each_task_once() -> None:
    assignments, random = hold(cyclic(6, 3)), np.random.default_rng(0)
    for number in range(5):
        first = []
        while assignments.missing:
            worker = int(random.integers(6))
            task = assignments.assign(worker, 0.0)
            if task is not None and assignments.finish(worker, task, 1.0):
                first.append(task)
        assert sorted(first) == list(range(6)), number
        assert all(assignments.assign(worker, 1.0) is None for worker in range(6))
        assignments.end(1.0)


def test_a_round_ends_at_k_distinct_results() -> None:
    assignments = hold(cyclic(4, 2), k=3)
    assert [assignments.finish(0, 0, 0), assignments.finish(1, 0, 0)] == [True, False]
    assert assignments.missing == 2
    assignments.finish(1, 1, 0)
    assignments.finish(2, 2, 0)
    assert assignments.missing == 0


def test_nobody_begins_more_than_r() -> None:
    assignments = hold(cyclic(5, 5), r=2)
    assert [_one(assignments, 0) is None for _ in range(4)] == [False, False, True, True]
    assignments.end(1.0)
    assert _one(assignments, 0) is not None


def test_asked_again_it_is_the_same_task() -> None:
    assignments = hold(cyclic(8, 8))
    first = assignments.assign(3, 0.0)
    assert [assignments.assign(3, 1.0) for _ in range(5)] == [first] * 5


def test_what_another_one_has_done_is_given_up() -> None:
    assignments = hold(cyclic(3, 3))
    assert assignments.assign(0, 0.0) == 0
    assignments.finish(2, 0, 1.0)
    assert assignments.assign(0, 2.0) == 1


def test_who_leaves_leaves_its_tasks_to_those_who_also_hold_them() -> None:
    assignments = Assignments(r=0)
    assignments.add_device(1, [0])
    assignments.add_device(2, [1, 0])
    assert (assignments.assign(1, 0.0), assignments.assign(2, 0.0)) == (0, 1)
    assignments.remove_device(1)
    assignments.finish(2, 1, 1.0)
    assert assignments.assign(2, 1.0) == 0
    assert assignments.missing == 1


def test_what_nobody_holds_any_more_is_not_waited_for() -> None:
    assignments = Assignments(r=0, k=2)
    assignments.add_device(1, [0])
    assignments.add_device(2, [1])
    assignments.finish(1, 0, 0.0)
    assignments.remove_device(2)
    assert assignments.missing == 0
    assignments.add_device(2, [1])
    assert assignments.missing == 1


def test_who_is_not_there_or_holds_nothing_gets_nothing() -> None:
    assignments = Assignments(r=0)
    assert assignments.assign(1, 0.0) is None
    assignments.add_device(1, [])
    assert assignments.assign(1, 0.0) is None
    assert assignments.missing == 0


def test_one_that_is_late_loses_its_task_to_another() -> None:
    """Device 2 has always taken a second. When it has been at its task for a minute, the other one gets
    it.
    """
    assignments = Assignments(r=0)
    assignments.add_device(1, [0, 1, 2])
    assignments.add_device(2, [2, 1, 0])
    for _ in range(10):
        for device in (1, 2):
            task = assignments.assign(device, 0.0)
            assert task is not None
            assignments.finish(device, task, 1.0)
        assignments.end(1.0)
    first, second = assignments.assign(1, 0.0), assignments.assign(2, 0.0)
    assert first is not None
    assignments.finish(1, first, 1.0)
    third = assignments.assign(1, 1.0)
    assert third not in (first, second)
    assert third is not None
    assignments.finish(1, third, 60.0)
    assert assignments.assign(1, 60.0) == second


def test_who_would_wait_for_one_that_never_asks_gets_its_task() -> None:
    """Device 2 is ten times as fast, and holds the last task, too; but it is not there to ask."""
    assignments = Assignments(r=0)
    assignments.add_device(1, [0])
    assignments.add_device(2, [0, 1])
    assignments.speeds.observe(1, 10.0, first=True)
    assignments.speeds.observe(2, 1.0, first=True)
    assert assignments.assign(1, 0.0) is None
    handed, now = None, 0.0
    while handed is None:
        handed = assignments.assign(1, now)
        if handed is None:
            assert assignments.recheck_time is not None
            assert assignments.recheck_time > now
            now, assignments.recheck_time = assignments.recheck_time, None
    assert handed == 0
    assert now < 20


def test_who_has_nothing_to_do_looks_again_when_another_is_late() -> None:
    assignments = Assignments(r=0)
    assignments.add_device(1, [0, 1])
    assignments.add_device(2, [1, 0])
    for _ in range(5):
        assert {assignments.assign(1, 0.0), assignments.assign(2, 0.0)} == {0, 1}
        for device in (1, 2):
            assignments.finish(device, assignments.participants[device].begun[-1], 1.0)
        assignments.end(0.0)
    first, second = assignments.assign(1, 0.0), assignments.assign(2, 0.0)
    assert first is not None
    assignments.finish(1, first, 0.9)
    assert assignments.assign(1, 0.9) is None, "device 2 will be done in a moment"
    assert assignments.recheck_time == pytest.approx(1.0, abs=0.1)
    assert assignments.assign(1, 3.0) == second, "it was not"
