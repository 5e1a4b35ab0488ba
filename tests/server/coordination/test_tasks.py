"""Rounds of tasks in the engine: what applies, what a journal makes of it, what is not applied."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.coordination.modes import create_coordinator
from edgeflock.server.coordination.tasks import TaskRounds
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import recover
from edgeflock.server.scheduling import Assignments
from edgeflock.shared.errors import AlreadyComputed, BaseExpired, NoSuchTask
from edgeflock.shared.protocol.messages import Receipt, Update
from edgeflock.shared.settings.coordination import CoordinationSettings
from tests.server.pushes import (
    DEADLINE,
    LAYOUT,
    THETA,
    commit,
    copy_as_killed,
    dense_update,
    end_round,
    journal_rows,
    open_engine,
    push,
    recovered,
    sparse_update,
)

ROUNDS = Regime("adacomp", 0.1, 6, rounds=True)


def open_tasks(directory: Path, *, r: int = 3, k: int = 0) -> tuple[Engine, TaskRounds]:
    """The engine of a run of tasks, begun or taken up."""
    journal = open_engine(directory, ROUNDS)[0]
    journal.close()
    journal = Journal(directory / "journal.sqlite")
    tasks = TaskRounds(Assignments(r, k), DEADLINE, LAYOUT)
    return Engine(journal, LAYOUT, recover(journal, LAYOUT, ROUNDS), tasks), tasks


def hold(engine: Engine, **shards: str) -> list[int]:
    """Devices of these names are there, and hold these shards."""
    assert engine.tasks is not None
    devices = []
    for name, held in shards.items():
        devices.append(engine.device_id(name))
        engine.tasks.set_shards(devices[-1], held.split(","))
        engine.add_device(devices[-1])
    return devices


def gradient(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(LAYOUT.size).astype(np.float32)


def of(task: int | None, update: Update) -> Update:
    return replace(update, task=task)


def test_the_mode_is_rounds_with_tasks() -> None:
    settings = CoordinationSettings(mode="tasks", tasks=2, distinct=3, deadline=2)
    assert isinstance(create_coordinator(settings, LAYOUT), TaskRounds)


def test_the_first_of_each_shard_applies_and_no_other(tmp_path: Path) -> None:
    engine, tasks = open_tasks(tmp_path)
    a, b = hold(engine, a="x,y", b="y,x")
    assert commit(engine, [push(a, of(0, dense_update(1, 0, gradient(1))))]) == [None]
    (again,) = commit(engine, [push(b, of(1, dense_update(1, 0, gradient(2))))])
    assert isinstance(again, AlreadyComputed)
    assert tasks.status() == (2, 1, 1, 1)
    assert engine.theta()[1].tobytes() == THETA.tobytes()
    engine.commit([push(b, of(0, dense_update(2, 0, gradient(3))))], 0.0)
    mean = (gradient(1) + gradient(3)) / 2
    np.testing.assert_allclose(engine.theta()[1], THETA - np.float32(0.1) * mean, rtol=1e-5, atol=1e-6)
    assert [(row[1], row[2]) for row in journal_rows(tmp_path)] == [(a, 1), (b, 2)]
    assert tasks.status() == (2, 0, 2, 1)


def test_one_device_may_have_several_in_a_round(tmp_path: Path) -> None:
    engine, _ = open_tasks(tmp_path)
    (a,) = hold(engine, a="x,y,z")
    assert commit(engine, [push(a, of(i, dense_update(i + 1, 0, gradient(i)))) for i in (0, 1)]) == [
        None,
        None,
    ]
    engine.commit([push(a, of(2, dense_update(3, 0, gradient(2))))], 0.0)
    assert engine.published.version == 3
    # Each has a receipt of its own for ever.
    again = commit(engine, [push(a, of(i, dense_update(i + 1, 0, gradient(9)))) for i in range(3)])
    assert again == [Receipt(i, i, None) for i in (1, 2, 3)]


def test_a_round_ends_with_its_last_holder_or_at_its_deadline(tmp_path: Path) -> None:
    engine, _ = open_tasks(tmp_path)
    a, b = hold(engine, a="x", b="y")
    commit(engine, [push(a, of(0, dense_update(1, 0, gradient(1))))])
    engine.remove_device(b)
    assert len(engine.commit([], 0.0)) == 1
    hold(engine, b="y")
    commit(engine, [push(a, of(0, dense_update(2, 1, gradient(1))))])
    assert [receipt.version for _, receipt in end_round(engine)] == [2]
    assert engine.due is None


def test_what_is_late_or_of_no_shard_leaves_no_trace(tmp_path: Path) -> None:
    engine, _ = open_tasks(tmp_path, k=1)
    a, b = hold(engine, a="x", b="y")
    for task in (None, 1):
        (refused,) = commit(engine, [push(a, of(task, dense_update(1, 0, gradient(1))))])
        assert isinstance(refused, NoSuchTask)
    engine.commit([push(a, of(0, dense_update(1, 0, gradient(1))))], 0.0)
    (late,) = commit(engine, [push(b, of(0, dense_update(1, 0, gradient(2))))])
    assert isinstance(late, BaseExpired)
    assert len(journal_rows(tmp_path)) == 1


def test_an_update_that_cannot_be_decoded_does_not_take_its_shard(tmp_path: Path) -> None:
    engine, tasks = open_tasks(tmp_path)
    a, b = hold(engine, a="x", b="x")
    commit(engine, [push(a, of(0, sparse_update(1, 0, {2: float("nan")})))])
    assert tasks.status().finished == 0
    engine.commit([push(b, of(0, dense_update(1, 0, gradient(1))))], 0.0)
    assert engine.published.version == 1


@pytest.mark.parametrize("coding", ["f32", "codebook4", "sign"])
def test_after_a_kill_the_bits_are_those_of_whole_rounds(tmp_path: Path, coding: str) -> None:
    """Ten rounds of random devices, speeds and deaths; the journal is copied at random moments."""
    (tmp_path / "run").mkdir()
    engine, tasks = open_tasks(tmp_path / "run")
    random = np.random.default_rng(6)
    holds = dict(a="u,v,w", b="v,w,x", c="w,x,u", d="x,u,v")
    devices = hold(engine, **holds)
    sequences = dict.fromkeys(devices, 0)
    for moment in range(60):
        device = int(random.choice(devices))
        if random.random() < 0.1:
            engine.remove_device(device)
            engine.commit([], 0.0)
            engine.add_device(device)
        task = tasks.assign(device, float(moment))
        if task is None:
            continue
        sequences[device] += 1
        entries = {int(k): float(random.standard_normal()) for k in range(0, LAYOUT.size, 3)}
        if coding == "sign":
            entries = {k: np.copysign(0.5, value) for k, value in entries.items()}
        one = of(task, sparse_update(sequences[device], engine.published.version, entries, coding=coding))
        engine.commit([push(device, one)], float(moment) / 100)
        if random.random() < 0.2:
            killed = recovered(copy_as_killed(tmp_path / "run", tmp_path / f"killed-{moment}"), ROUNDS)
            version, theta = engine.theta()
            assert (killed.version, killed.theta.tobytes()) == (version, theta.tobytes())
    assert engine.published.version >= 20


def test_standing_is_of_those_who_are_there(tmp_path: Path) -> None:
    engine, tasks = open_tasks(tmp_path)
    a, _ = hold(engine, a="x,y", b="y,z")
    assert tasks.status() == (3, 0, 3, 0)
    engine.remove_device(a)
    assert tasks.status() == (2, 0, 2, 0)


def test_what_is_given_up_is_computed_anew(tmp_path: Path) -> None:
    engine, tasks = open_tasks(tmp_path)
    (a,) = hold(engine, a="x,y")
    held = push(a, of(0, dense_update(1, 0, gradient(1))))
    commit(engine, [held])
    assert tasks.discard() == [held]
    assert engine.held_updates == {}
    assert tasks.assign(a, 0.0) == 0
