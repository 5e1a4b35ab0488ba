"""Rounds of tasks on a device: it computes the data shards that the server assigns in each round.

The first result of each data shard counts in a round, from any device. A result that does not count is
undone: the device's memory is restored, and its samples return.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from edgeflock.client.training.interfaces import DeviceRun
from edgeflock.client.training.trainer import Stopped
from edgeflock.shared.errors import BaseExpired, BaseInFuture, StepTooLarge
from edgeflock.shared.protocol.messages import Task, Update


class TaskParticipant:
    """Takes part in the rounds of one run."""

    def __init__(
        self, run: DeviceRun, choose: Callable[[int], None], add_facts: Callable[[Update], Update]
    ) -> None:
        """`choose` selects the next batches' data shard; `add_facts` adds the device's facts to an update."""
        self._run, self._sequence = run, run.welcome.sequence
        self._choose_shard, self._add_facts = choose, add_facts

    async def run(self, is_leaving: Callable[[], bool]) -> None:
        """Run rounds until the device is `is_leaving`. Raises the server's final refusal, or Diverged."""
        while not is_leaving():
            task = await self._run.server.task()
            while task is not None:
                task = await (
                    self._run.server.task() if task.shard is None else self._compute_shard(task.shard)
                )
            await self._run.pull()

    async def _compute_shard(self, shard: int) -> Task | None:
        """Compute `shard` and return the next task; None: pull the model first."""
        self._choose_shard(shard)
        await self._run.batches.ready(self._run.welcome.local_steps)
        if await self._run.wait_permission():
            return None
        self._sequence += 1
        update = await self._compute_in_round()
        if update is None:
            return None
        update = self._add_facts(replace(update, held=self._run.replica.held, pull=False, task=shard))
        try:
            task = await self._run.server.offer(update)
        except (BaseExpired, BaseInFuture) as late:
            self._run.progress.count_late(late)
            self._undo()
            return None
        except StepTooLarge as large:
            self._run.progress.count_too_large(large)
            self._run.trainer.undo()
            self._run.batches.settle()
            return None
        if task.counted:
            self._run.progress.too_large = 0
            self._run.batches.settle()
            self._run.progress.updates += 1
            self._run.progress.samples += update.samples
            self._run.progress.loss = update.loss
        else:
            self._run.progress.duplicates += 1
            self._undo()
        return task

    async def _compute_in_round(self) -> Update | None:
        """Return the next update; None if its round ends first. Then no further local step begins."""
        stopped: list[bool] = []
        replica = self._run.replica
        computing = asyncio.ensure_future(
            self._run.train(
                self._run.trainer.step, replica.theta, replica.version, self._sequence, lambda: bool(stopped)
            )
        )
        over = asyncio.ensure_future(self._run.server.round_end())
        try:
            await asyncio.wait((computing, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                update: Update = computing.result()
                return update
            stopped.append(True)
            with suppress(Stopped):
                await computing
            self._run.progress.stopped += 1
            self._undo()
            over.result()
            return None
        finally:
            for one in (computing, over):
                one.cancel()
            await asyncio.wait((computing, over))

    def _undo(self) -> None:
        self._run.trainer.undo()
        self._run.batches.take_back()
