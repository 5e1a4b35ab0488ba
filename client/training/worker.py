"""What a device does: pull, train on its own data, push; again (AdaComp, algorithm 1)."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from edgeflock.client.data import Batches, NothingFit, StreamOver
from edgeflock.client.training.attempts import RetryingCompute
from edgeflock.client.training.averaging import Averaging
from edgeflock.client.training.elastic import Elastic
from edgeflock.client.training.replica import Replica
from edgeflock.client.training.seams import (
    HOPELESS,
    Compute,
    Permitted,
    ServerLink,
    Training,
    UpdateSpool,
    WorkerProgress,
    always,
    of_the_server,
    take,
)
from edgeflock.client.training.shards import only
from edgeflock.client.training.tasks import TaskParticipant
from edgeflock.shared.errors import (
    BaseExpired,
    BaseInFuture,
    Diverged,
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
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Facts, Model, Receipt, Update, Welcome

log = logging.getLogger(__name__)

_TELEMETRY_EVERY = 5.0
"""Seconds, at least, from telling how the device does to telling it again, and a little more at most;"""

_RESTING_EVERY = 60.0
"""while it pauses, or waits for the model, as it may for its turn."""

Load = Callable[[Weights, Layout], Awaitable[Model | None]]
"""load(weights, layout): the first model; None: the current one is to be pulled."""


async def pull_instead(weights: Weights, layout: Layout) -> None:
    """Where nothing can be loaded."""


class Worker:
    """Asks, has an update made, pushes and settles it, until the server says stop."""

    def __init__(
        self,
        server: ServerLink,
        trainer: Callable[[Welcome], Awaitable[Training]],
        batches: Batches,
        compute: Compute = asyncio.to_thread,
        health: Callable[[], Facts] = dict,
        load: Load = pull_instead,
        leaving: Callable[[], bool] = lambda: False,
        choose: Callable[[int], None] = only,
        permitted: Permitted = always,
        spool: UpdateSpool | None = None,
    ) -> None:
        """`trainer` makes what trains, on these `batches`, for the run that a Welcome describes. `health`
        tells how the device does. `load` loads the first model of a run that begins with weights of its own.
        `leaving` is whether the device will stop now: its last update asks for no model.
        `choose` has the next batches be of one of the device's shards, in a run of tasks. `permitted` is
        awaited before anything is loaded, and before each step. `spool` keeps the update that is on its way,
        but in a run of tasks or of elastic averaging, where one of an earlier time is worth nothing.
        """
        self._server = server
        self._make_trainer = trainer
        self._batches = batches
        self._compute = compute
        self._health = health
        self._load = load
        self._leaving = leaving
        self._choose = choose
        self._permitted = permitted
        self._spool = spool
        self._telemetry_due = -math.inf
        """When the next update is to carry some, by the event loop's clock."""
        self._pulls = False
        """Whether it waits for the model."""
        self._step_seconds = 0.0
        """That its last update took to compute."""
        self.progress = WorkerProgress()
        self._attempt = RetryingCompute(compute, batches, self.progress)

    async def run(self) -> WorkerProgress:
        """Take part in the server's run, and in the next one if the server is set up anew meanwhile.

        Returns once the run is over or the device leaves.

        Raises ConfigError if model and data do not fit, Diverged if the model does, TrainingFailed if what
        trains fails again and again, SessionRefused if the server will not have this device.
        """
        while True:
            try:
                return await self._take_part(await self._server.join())
            except RunReplaced as replaced:
                self._batches.take_back()
                log.warning("%s", replaced)
            except (RunOver, StreamOver) as over:
                self._batches.take_back()
                log.info("%s", over)
                return self.progress

    async def _take_part(self, welcome: Welcome) -> WorkerProgress:
        await self._permitted()
        trainer = await self._make_trainer(welcome)
        layout = trainer.layout
        if list(layout.shapes()) != welcome.layout:
            raise LayoutMismatch(f"{welcome.model} has another layout here than on the server")
        self._server.speak_as(layout.digest)
        with of_the_server("first model"):
            replica = Replica(layout, welcome.start)
            if welcome.weights is not None:
                first = await self._load(welcome.weights, layout)
                if first is not None:
                    replica.take(first)
        self._telemetry_due = -math.inf
        self._attempt.steps = 1 if welcome.elastic else welcome.local_steps
        sequence, too_large = await self._begin_again(welcome, layout), 0
        await self._pull(replica)
        if welcome.elastic:
            return await self._average(welcome, trainer, replica)
        if welcome.tasks:
            rounds = TaskParticipant(
                welcome, self._server, trainer, self._batches, replica, self._attempt, self._choose,
                self._with_telemetry, self.progress, self._permitted,
            )  # fmt: skip
            await rounds.run(self._leaving)
            return self.progress
        while True:
            await self._batches.ready(welcome.local_steps)
            if await self._permitted():
                await self._pull(replica)
                continue
            assert replica.version is not None, "pulled before"
            began = asyncio.get_running_loop().time()
            try:
                update: Update = await self._attempt(
                    trainer.step, replica.theta, replica.version, sequence + 1
                )
            except NothingFit:
                self._batches.settle()
                continue
            self._step_seconds = asyncio.get_running_loop().time() - began
            update = replace(update, held=replica.held, pull=not self._leaving())
            update = self._with_telemetry(update)
            try:
                receipt = await self._push(update, welcome.run, layout)
            except (BaseExpired, BaseInFuture) as stale:
                self.progress.refused += 1
                log.info("%s", stale)
                trainer.take_back()
                self._batches.take_back()
                if await self._pull(replica):  # the server may have gone back to an earlier one
                    trainer.forget()
                continue
            except StepTooLarge as large:
                self.progress.refused += 1
                too_large += 1
                if too_large == HOPELESS:
                    raise Diverged(f"{HOPELESS} updates in a row were refused: {large}") from large
                log.warning("%s", large)
                trainer.undo()
                self._batches.settle()
                await self._pull(replica)
                continue
            sequence, too_large = update.sequence, 0
            self._batches.settle()
            self.progress.samples += update.samples
            self._acknowledged(update, receipt)
            if not update.pull:
                return self.progress
            with of_the_server("mean over the fleet"):
                trainer.take_fleet(receipt.moments, receipt.labels)
            if receipt.model is None:  # it is others' turn
                await self._pull(replica)
            else:
                take(replica, receipt.model)

    async def _pull(self, replica: Replica) -> bool:
        """Bring `replica` up to date, which may take long where devices take part in turn. Whether the whole
        model came.
        """
        self._pulls = True
        try:
            model = await self._server.pull(replica.version, replica.held)
        finally:
            self._pulls = False
        take(replica, model)
        return model.base is None

    async def _begin_again(self, welcome: Welcome, layout: Layout) -> int:
        """The number of the last update of this device that the server has, or refused: what an earlier
        client of it had under way is sent again first, as it was, so that it counts once.
        """
        if self._spool is None or welcome.elastic or welcome.tasks:
            return welcome.sequence
        update = self._spool.find(welcome.run, layout.digest, welcome.frame_bytes)
        if update is None:
            return welcome.sequence
        if update.sequence <= welcome.sequence:
            self._spool.drop()
            log.info("update %d of before this start had arrived", update.sequence)
            return welcome.sequence
        again = replace(update, facts=None, held=0, pull=False)
        try:
            receipt = await self._push(again, welcome.run, layout)
        except SessionRefused:
            raise
        except Refused as refused:
            self.progress.refused += 1
            log.warning("dropped update %d of before this start: %s", update.sequence, refused)
            return welcome.sequence
        self._acknowledged(again, receipt)
        self.progress.samples += update.samples
        log.info("sent update %d of before this start", update.sequence)
        return update.sequence

    async def _push(self, update: Update, run: str, layout: Layout) -> Receipt:
        """The receipt for `update`. Until it is there, or a refusal, the spool has it."""
        if self._spool is None:
            return await self._server.push(update)
        await self._compute(self._spool.keep, run, layout.digest, update)
        try:
            receipt = await self._server.push(update)
        except SessionRefused:
            raise
        except (Refused, RunOver, RunReplaced):
            self._spool.drop()
            raise
        self._spool.drop()
        return receipt

    async def _average(self, welcome: Welcome, trainer: Training, replica: Replica) -> WorkerProgress:
        """Take part in elastic averaging (averaging.py): stored data or a stream are used up step by step."""

        async def push(update: Update) -> None:
            update = self._with_telemetry(update)
            try:
                self._acknowledged(update, await self._server.push(update))
            except Refused:
                self.progress.refused += 1
                raise

        version = None if replica.held else replica.version  # else its numbers may be rounded
        elastic = Elastic(replica.theta, version, trainer.layout, welcome)
        cut = chunks(trainer.layout, welcome.chunk)
        averaging = Averaging(self._server.pull, push, elastic, cut, welcome.local_steps, welcome.sequence)
        try:
            while not self._leaving():
                await self._batches.ready(1)
                await self._permitted()
                with suppress(NothingFit):
                    done = await averaging.step(self._attempt, trainer.gradient)
                    self.progress.samples += done.samples
                self._batches.settle()
            await averaging.finish()
            return self.progress
        finally:
            await averaging.stop()

    def _acknowledged(self, update: Update, receipt: Receipt) -> None:
        """Count it. Raises ServerAtFault if the receipt is for another one."""
        self.progress.updates += 1
        self.progress.loss = update.loss
        if receipt.sequence != update.sequence:
            raise ServerAtFault(
                f"the server answered update {update.sequence} with a receipt for {receipt.sequence}"
            )

    async def keep_telling(self, tell: Callable[[Facts], Awaitable[None]]) -> None:
        """`tell` how the device does whenever no update has for long, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_TELEMETRY_EVERY / 4)
            if clock() >= self._telemetry_due + _TELEMETRY_EVERY / 4 and (facts := self.facts()):
                every = _RESTING_EVERY if self._pulls or "paused" in facts else _TELEMETRY_EVERY
                self._telemetry_due = clock() + every
                await tell(facts)

    async def tell_now(self, tell: Callable[[Facts], Awaitable[None]]) -> None:
        """`tell` how the device does: something of it has changed, so that more may be told soon."""
        self._telemetry_due = -math.inf
        await tell(self.facts())

    def facts(self) -> Facts:
        """How the device does; if there is nothing else to tell, not how long a step takes, either."""
        facts = {**self._health(), **self._batches.telemetry()}
        if facts and self._step_seconds:
            facts["step"] = round(self._step_seconds, 3)
        if self.progress.failed:
            facts["failed"] = self.progress.failed
        if self._spool is not None and self._spool.fails:
            facts["spool_fails"] = 1
        return facts

    def _with_telemetry(self, update: Update) -> Update:
        """`update`; if it is time, with what there is to tell about the device."""
        now = asyncio.get_running_loop().time()
        if now < self._telemetry_due:
            return update
        facts = self.facts()
        if not facts:
            return update
        self._telemetry_due = now + _TELEMETRY_EVERY
        return replace(update, facts=facts)
