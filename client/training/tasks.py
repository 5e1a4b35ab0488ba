"""Rounds of tasks on a device: it computes the data shards that the server assigns in each round.

The first result of each data shard counts in a round, from any device. A result that does not count is
undone: the device's memory is restored, and its samples return.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from edgeflock.client.data import Batches
from edgeflock.client.training.interfaces import (
    Compute,
    PermissionWait,
    ServerLink,
    WorkerProgress,
    apply_model,
)
from edgeflock.client.training.replica import Replica
from edgeflock.client.training.trainer import Stopped, Trainer
from edgeflock.shared.errors import BaseExpired, BaseInFuture, StepTooLarge
from edgeflock.shared.protocol.messages import Task, Update, Welcome


class TaskParticipant:
    """Takes part in the rounds of one run."""

    def __init__(
        self,
        welcome: Welcome,
        server: ServerLink,
        trainer: Trainer,
        batches: Batches,
        replica: Replica,
        compute: Compute,
        choose: Callable[[int], None],
        add_facts: Callable[[Update], Update],
        progress: WorkerProgress,
        wait_permission: PermissionWait,
    ) -> None:
        """`choose` selects the next batches' data shard; `add_facts` adds the device's facts to an update."""
        self._server, self._trainer, self._batches = server, trainer, batches
        self._replica, self._compute = replica, compute
        self._choose_shard, self._add_facts = choose, add_facts
        self._progress = progress
        self._wait_permission = wait_permission
        self._local_steps, self._sequence = welcome.local_steps, welcome.sequence

    async def run(self, is_leaving: Callable[[], bool]) -> None:
        """Run rounds until the device is `is_leaving`. Raises the server's final refusal, or Diverged."""
        while not is_leaving():
            task = await self._server.task()
            while task is not None:
                task = await (self._server.task() if task.shard is None else self._compute_shard(task.shard))
            apply_model(self._replica, await self._server.pull(self._replica.version, self._replica.held))

    async def _compute_shard(self, shard: int) -> Task | None:
        """Compute `shard` and return the next task; None: pull the model first."""
        self._choose_shard(shard)
        await self._batches.ready(self._local_steps)
        if await self._wait_permission():
            return None
        self._sequence += 1
        update = await self._compute_in_round()
        if update is None:
            return None
        update = self._add_facts(replace(update, held=self._replica.held, pull=False, task=shard))
        try:
            task = await self._server.offer(update)
        except (BaseExpired, BaseInFuture) as late:
            self._progress.count_late(late)
            self._undo()
            return None
        except StepTooLarge as large:
            self._progress.count_too_large(large)
            self._trainer.undo()
            self._batches.settle()
            return None
        if task.counted:
            self._progress.too_large = 0
            self._batches.settle()
            self._progress.updates += 1
            self._progress.samples += update.samples
            self._progress.loss = update.loss
        else:
            self._progress.duplicates += 1
            self._undo()
        return task

    async def _compute_in_round(self) -> Update | None:
        """Return the next update; None if its round ends first. Then no further local step begins."""
        stopped: list[bool] = []
        replica = self._replica
        computing = asyncio.ensure_future(
            self._compute(
                self._trainer.step, replica.theta, replica.version, self._sequence, lambda: bool(stopped)
            )
        )
        over = asyncio.ensure_future(self._server.round_end())
        try:
            await asyncio.wait((computing, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                update: Update = computing.result()
                return update
            stopped.append(True)
            with suppress(Stopped):
                await computing
            self._progress.stopped += 1
            self._undo()
            over.result()
            return None
        finally:
            for one in (computing, over):
                one.cancel()
            await asyncio.wait((computing, over))

    def _undo(self) -> None:
        self._trainer.undo()
        self._batches.take_back()
