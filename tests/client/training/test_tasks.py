"""A device in a run of tasks: it computes what it is told, and stops when it is told."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgeflock.client.data.batcher import Shards, Shuffled, require_first_shard
from edgeflock.client.training.trainer import Stopped, Trainer
from edgeflock.client.training.worker import Worker
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import BaseExpired, Diverged, ServerAtFault, StepTooLarge
from edgeflock.shared.protocol.messages import Task, Update
from tests.client.training.fakes import (
    LAYOUT,
    WELCOME,
    FakeBackend,
    FakeServer,
    Reply,
    falling,
    listed,
    sent,
    theta_at,
    training,
)

TASKS = replace(WELCOME, tasks=True)


def shards(count: int = 3) -> Shards:
    """Shard i has samples of class i."""
    return Shards(
        [
            Shuffled(Dataset(np.zeros((9, 1), np.float32), np.full(9, shard)), np.random.default_rng(0))
            for shard in range(count)
        ]
    )


def device(server: FakeServer, backend: FakeBackend, held: Shards) -> Worker:
    return Worker(server, training(backend, held), held, choose=held.choose)


async def test_it_computes_the_shards_that_it_is_told() -> None:
    server = FakeServer([], TASKS, handed=[Task(2), Task(0)])
    backend = FakeBackend()
    progress = await device(server, backend, shards()).run()
    assert [(update.task, update.sequence, update.pull) for update in server.updates] == [
        (2, 41, False),
        (0, 42, False),
    ]
    assert progress.updates == 1, "the second one met the end of the run"


async def test_the_samples_are_of_the_shard() -> None:
    server = FakeServer([], TASKS, handed=[Task(2), Task(0), Task(1)])
    backend = FakeBackend()
    await device(server, backend, shards()).run()
    assert [set(targets) for _, targets in backend.seen] == [{2}, {0}, {1}]


async def test_when_the_round_is_over_it_pulls_and_asks_again() -> None:
    server = FakeServer([], TASKS, handed=[None, Task(0), Task(None), None, Task(1)])
    await device(server, FakeBackend(), shards()).run()
    reported = [one if isinstance(one, str | tuple) else "update" for one in server.asked]
    pull, again = ("pull", None), ("pull", 3)
    assert reported[2:] == [pull, "task", again, "task", "update", "task", again, "task", "update"]


async def test_told_that_there_is_nothing_for_now_it_waits_and_asks_for_no_model() -> None:
    """Also as the first thing after a model: the next Task may be under way already."""
    server = FakeServer([], TASKS, handed=[Task(None), Task(1), Task(None), Task(2)])
    await device(server, FakeBackend(), shards()).run()
    reported = [one if isinstance(one, str | tuple) else "update" for one in server.asked]
    assert reported[2:] == [("pull", None), "task", "task", "update", "task", "update"]


async def test_what_is_no_shard_of_it_is_the_servers_fault() -> None:
    with pytest.raises(ServerAtFault, match="shard 3, counted from 0; this device holds 3"):
        await device(FakeServer([], TASKS, handed=[Task(3)]), FakeBackend(), shards()).run()
    require_first_shard(0)
    with pytest.raises(ServerAtFault, match="this device holds 1"):
        require_first_shard(1)


@pytest.mark.parametrize("late", [False, True])
async def test_what_did_not_count_is_as_if_it_had_not_been_computed(late: bool) -> None:
    """Duplicates and late ones leave nothing in what error feedback remembers."""
    welcome = replace(TASKS, feedback=1.0)
    backend = listed(falling(1.0), falling(2.0), falling(1.0))
    handed: list[Task | None] = [Task(0), Task(1)]
    handed += [Task(2)] if late else [Task(2, counted=False)]
    replies: list[Reply] = [None, BaseExpired("late")] if late else []
    server = FakeServer(replies, welcome, handed=handed)
    progress = await device(server, backend, shards()).run()
    assert (progress.duplicates, progress.refused) == ((0, 1) if late else (1, 0))
    alone = FakeServer([], welcome, handed=[Task(0), Task(2)])
    await device(alone, listed(falling(1.0), falling(1.0)), shards()).run()
    assert sent(server.updates[-1]) == sent(alone.updates[-1])


async def test_it_begins_no_further_step_once_its_round_is_over() -> None:
    """Of twenty local steps, told during the third: three are taken, and nothing is sent."""
    welcome = replace(TASKS, local_steps=20, feedback=1.0)
    server, backend, held = FakeServer([], welcome, handed=[Task(0)]), FakeBackend(), shards()

    async def compute(step: Callable[..., Update], *arguments: Any) -> Update:
        stopped = arguments[-1]

        def watched() -> bool:
            if len(backend.seen) == 3:
                return True
            return bool(stopped())

        server.ended.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return step(*arguments[:-1], watched)

    worker = Worker(server, training(backend, held), held, compute, choose=held.choose)
    progress = await worker.run()
    assert server.updates == []
    assert len(backend.seen) <= 3
    assert (progress.updates, progress.stopped) == (0, 1)
    assert ("pull", 3) in server.asked


async def test_updates_too_large_are_given_up_after_some() -> None:
    server = FakeServer([StepTooLarge("too large")] * 3, TASKS, handed=[Task(0)] * 5)
    with pytest.raises(Diverged, match="3 updates in a row"):
        await device(server, FakeBackend(), shards()).run()


def test_a_step_that_is_stopped_leaves_nothing() -> None:
    held = shards(1)
    trainer = Trainer(FakeBackend(), held, replace(TASKS, feedback=1.0))
    other = Trainer(FakeBackend(), shards(1), replace(TASKS, feedback=1.0))
    with pytest.raises(Stopped):
        trainer.step(theta_at(3), 3, 1, lambda: True)
    trainer.undo()
    assert trainer.step(theta_at(3), 3, 2) == other.step(theta_at(3), 3, 2)
    trainer.step(theta_at(4), 3, 3)
    trainer.undo()
    assert trainer.step(theta_at(5), 3, 4) == other.step(theta_at(5), 3, 4)
    assert trainer.layout == LAYOUT


async def test_after_a_pause_a_task_is_left_to_others_and_the_model_pulled_anew() -> None:
    waits = iter([False, True, False])
    server, held = FakeServer([], TASKS, handed=[Task(2), Task(0)]), shards()

    async def wait() -> bool:
        return next(waits)

    await Worker(server, training(FakeBackend(), held), held, choose=held.choose, wait_permission=wait).run()
    asked = [question for question in server.asked[2:] if not isinstance(question, Update)]
    assert asked == [("pull", None), "task", ("pull", 3), "task"]
    assert [(update.task, update.sequence) for update in server.updates] == [(0, 41)]
