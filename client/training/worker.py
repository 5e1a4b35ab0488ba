"""The loop of a device: pull, train on its own data, push (AdaComp, algorithm 1)."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from edgeflock.client.data import Batches, NoUsableSamples, StreamEnded
from edgeflock.client.data.batcher import require_first_shard
from edgeflock.client.training.attempts import RetryingCompute
from edgeflock.client.training.conversation import ServerLink
from edgeflock.client.training.elastic import Averaging, Elastic
from edgeflock.client.training.interfaces import (
    Compute,
    DeviceRun,
    PermissionWait,
    WorkerProgress,
    apply_model,
    as_server_fault,
    permit_always,
)
from edgeflock.client.training.replica import Replica
from edgeflock.client.training.spool import Spool
from edgeflock.client.training.sums import SumParticipant, SumPolicy
from edgeflock.client.training.tasks import TaskParticipant
from edgeflock.client.training.trainer import Trainer
from edgeflock.shared.errors import (
    BaseExpired,
    BaseInFuture,
    LayoutMismatch,
    Refused,
    RunOver,
    RunReplaced,
    ServerAtFault,
    SessionRefused,
    StepTooLarge,
)
from edgeflock.shared.model.chunks import chunks
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Weights
from edgeflock.shared.protocol.messages import Facts, Model, Receipt, Update, Welcome

log = logging.getLogger(__name__)

_TELEMETRY_EVERY = 5.0
"""The fewest seconds between two reports of a device's facts."""

_RESTING_EVERY = 60.0
"""The same while the device pauses or waits for the model, e.g. for its turn."""

Load = Callable[[Weights, Layout], Awaitable[Model | None]]
"""load(weights, layout) returns the first model; None: pull the current one."""


async def load_nothing(weights: Weights, layout: Layout) -> None:
    """Return None, so that the worker pulls the model."""


class Worker:
    """Pulls models, makes, pushes and settles updates, until the server ends the run."""

    def __init__(
        self,
        server: ServerLink,
        trainer: Callable[[Welcome], Awaitable[Trainer]],
        batches: Batches,
        compute: Compute = asyncio.to_thread,
        health: Callable[[], Facts] = dict,
        load: Load = load_nothing,
        is_leaving: Callable[[], bool] = lambda: False,
        choose: Callable[[int], None] = require_first_shard,
        wait_permission: PermissionWait = permit_always,
        spool: Spool | None = None,
        sum_policy: SumPolicy | None = None,
    ) -> None:
        """`trainer` makes a trainer on `batches` for the run of a Welcome.

        `health` returns the machine's facts. `load` loads the first model of a run with initial weights.
        `is_leaving` returns whether the device stops now: its last update requests no model. `choose` selects
        the data shard of the next batches, in a run of tasks. `wait_permission` is awaited before anything is
        loaded, and before each step. `spool` keeps the pending update, except in runs of tasks or elastic
        averaging, where an old update has no use. `sum_policy` has the device's own terms of secure sums.
        """
        self._server = server
        self._make_trainer = trainer
        self._batches = batches
        self._compute = compute
        self._health = health
        self._load_first_model = load
        self._is_leaving = is_leaving
        self._choose_shard = choose
        self._wait_permission = wait_permission
        self._spool = spool
        self._sum_policy = sum_policy or SumPolicy()
        self._telemetry_due = -math.inf
        """Time of the next telemetry, by the event loop's clock."""
        self._is_pulling = False
        """Whether it waits for a model."""
        self._is_private = False
        self._step_seconds = 0.0
        """Seconds to compute the last update."""
        self.progress = WorkerProgress()
        self._retrying = RetryingCompute(compute, batches, self.progress)

    async def run(self) -> WorkerProgress:
        """Take part in the server's run, and in the next run if it is replaced.

        Returns once the run is over or the device leaves.

        Raises ConfigError if model and data do not fit, and Diverged if the model diverges. Raises
        TrainingFailed if training fails repeatedly, and SessionRefused if the server rejects this device.
        """
        while True:
            try:
                return await self._take_part(await self._server.join())
            except RunReplaced as replaced:
                self._batches.take_back()
                log.warning("%s", replaced)
            except (RunOver, StreamEnded) as over:
                self._batches.take_back()
                log.info("%s", over)
                return self.progress

    async def _take_part(self, welcome: Welcome) -> WorkerProgress:
        self._is_private = welcome.private  # at once: facts are sent while this waits
        await self._wait_permission()
        trainer = await self._make_trainer(welcome)
        layout = trainer.layout
        if list(layout.shapes()) != welcome.layout:
            raise LayoutMismatch(f"{welcome.model} has another layout here than on the server")
        self._server.announce_layout(layout.digest)
        with as_server_fault("first model"):
            replica = Replica(layout, welcome.start)
            if welcome.weights is not None:
                first = await self._load_first_model(welcome.weights, layout)
                if first is not None:
                    replica.take(first)
        self._sum_policy.check(welcome)
        self._telemetry_due = -math.inf
        self._retrying.batches_per_step = 1 if welcome.elastic else welcome.local_steps
        sequence, self.progress.too_large = await self._resend_pending(welcome, layout), 0
        await self._pull(replica)
        if welcome.elastic:
            return await self._average(welcome, trainer, replica)
        run = DeviceRun(
            welcome, self._server, trainer, self._batches, replica, self._retrying, self._compute,
            self.progress, self._wait_permission,
        )  # fmt: skip
        if welcome.sums is not None:
            await SumParticipant(run, self._sum_policy).run(self._is_leaving)
            return self.progress
        if welcome.tasks:
            await TaskParticipant(run, self._choose_shard, self._with_telemetry).run(self._is_leaving)
            return self.progress
        while True:
            await self._batches.ready(welcome.local_steps)
            if await self._wait_permission():
                await self._pull(replica)
                continue
            assert replica.version is not None, "pulled before"
            began = asyncio.get_running_loop().time()
            try:
                update: Update = await self._retrying(
                    trainer.step, replica.theta, replica.version, sequence + 1
                )
            except NoUsableSamples:
                self._batches.settle()
                continue
            self._step_seconds = asyncio.get_running_loop().time() - began
            update = replace(update, held=replica.held, pull=not self._is_leaving())
            if welcome.evaluate and update.sequence % welcome.evaluate == 0:
                self._telemetry_due = -math.inf  # it has just been evaluated
            update = self._with_telemetry(update)
            try:
                receipt = await self._push(update, welcome.run, layout)
            except (BaseExpired, BaseInFuture) as stale:
                self.progress.count_late(stale)
                trainer.take_back()
                self._batches.take_back()
                if await self._pull(replica):  # the server may have restored an earlier model
                    trainer.forget()
                continue
            except StepTooLarge as large:
                self.progress.count_too_large(large)
                trainer.undo()
                self._batches.settle()
                await self._pull(replica)
                continue
            sequence, self.progress.too_large = update.sequence, 0
            self._batches.settle()
            self.progress.samples += update.samples
            self._acknowledge(update, receipt)
            if not update.pull:
                return self.progress
            with as_server_fault("mean over the fleet"):
                trainer.store_fleet(receipt.moments, receipt.labels)
            if receipt.model is None:  # it is others' turn
                await self._pull(replica)
            else:
                apply_model(replica, receipt.model)

    async def _pull(self, replica: Replica) -> bool:
        """Update `replica`; return whether the whole model came. It may take long if devices take turns."""
        self._is_pulling = True
        try:
            model = await self._server.pull(replica.version, replica.held)
        finally:
            self._is_pulling = False
        apply_model(replica, model)
        return model.base is None

    async def _resend_pending(self, welcome: Welcome, layout: Layout) -> int:
        """Send the pending update of an earlier process again; return the last update number the server has.

        It keeps its number, so that it counts once.
        """
        if self._spool is None or welcome.elastic or welcome.tasks or welcome.sums:
            return welcome.sequence
        update = self._spool.load(welcome.run, layout.digest, welcome.frame_bytes)
        if update is None:
            return welcome.sequence
        if update.sequence <= welcome.sequence:
            self._spool.drop()
            log.info("update %d from before the restart had arrived", update.sequence)
            return welcome.sequence
        again = replace(update, facts=None, held=0, pull=False)
        try:
            receipt = await self._push(again, welcome.run, layout)
        except SessionRefused:
            raise
        except Refused as refused:
            self.progress.refused += 1
            log.warning("dropped update %d from before the restart: %s", update.sequence, refused)
            return welcome.sequence
        self._acknowledge(again, receipt)
        self.progress.samples += update.samples
        log.info("sent update %d from before the restart", update.sequence)
        return update.sequence

    async def _push(self, update: Update, run: str, layout: Layout) -> Receipt:
        """Push `update` and return the receipt. The spool keeps it until the receipt or a refusal."""
        if self._spool is None:
            return await self._server.push(update)
        await self._compute(self._spool.save, run, layout.digest, update)
        try:
            receipt = await self._server.push(update)
        except SessionRefused:
            raise
        except (Refused, RunOver, RunReplaced):
            self._spool.drop()
            raise
        self._spool.drop()
        return receipt

    async def _average(self, welcome: Welcome, trainer: Trainer, replica: Replica) -> WorkerProgress:
        """Take part in elastic averaging (elastic.py). Each step settles its batches."""

        async def push(update: Update) -> None:
            update = self._with_telemetry(update)
            try:
                self._acknowledge(update, await self._server.push(update))
            except Refused:
                self.progress.refused += 1
                raise

        version = None if replica.held else replica.version  # only an untouched first model has one
        elastic = Elastic(replica.theta, version, trainer.layout, welcome)
        cut = chunks(trainer.layout, welcome.chunk)
        averaging = Averaging(self._server.pull, push, elastic, cut, welcome.local_steps, welcome.sequence)
        try:
            while not self._is_leaving():
                await self._batches.ready(1)
                await self._wait_permission()
                with suppress(NoUsableSamples):
                    done = await averaging.step(self._retrying, trainer.gradient)
                    self.progress.samples += done.samples
                self._batches.settle()
            await averaging.finish()
            return self.progress
        finally:
            await averaging.stop()

    def _acknowledge(self, update: Update, receipt: Receipt) -> None:
        """Count the update. Raises ServerAtFault if the receipt is for another one."""
        self.progress.updates += 1
        self.progress.loss = update.loss
        if receipt.sequence != update.sequence:
            raise ServerAtFault(
                f"the server answered update {update.sequence} with a receipt for {receipt.sequence}"
            )

    async def report_facts(self, send: Callable[[Facts], Awaitable[None]]) -> None:
        """Send the device's facts with `send` if no update carried them recently, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_TELEMETRY_EVERY / 4)
            if clock() >= self._telemetry_due + _TELEMETRY_EVERY / 4 and (facts := self.facts()):
                every = _RESTING_EVERY if self._is_pulling or "paused" in facts else _TELEMETRY_EVERY
                self._telemetry_due = clock() + every
                await send(facts)

    async def report_now(self, send: Callable[[Facts], Awaitable[None]]) -> None:
        """Send the device's changed facts with `send`, and make the next telemetry due at once."""
        self._telemetry_due = -math.inf
        await send(self.facts())

    def facts(self) -> Facts:
        """Return the device's facts. The duration of a step is only included together with others."""
        facts = {**self._health(), **({} if self._is_private else self._batches.telemetry())}
        if facts and self._step_seconds:
            facts["step"] = round(self._step_seconds, 3)
        if self.progress.failed:
            facts["failed"] = self.progress.failed
        if self._spool is not None and self._spool.has_failed:
            facts["spool_fails"] = 1
        return facts

    def _with_telemetry(self, update: Update) -> Update:
        """Return `update`, with the device's facts if they are due."""
        now = asyncio.get_running_loop().time()
        if now < self._telemetry_due:
            return update
        facts = self.facts()
        if not facts:
            return update
        self._telemetry_due = now + _TELEMETRY_EVERY
        return replace(update, facts=facts)
