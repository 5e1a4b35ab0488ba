"""Elastic averaging on a device: it trains on its own and exchanges chunks with the centre.

Each chunk is exchanged every `local_steps` steps, at its own phase. An exchange pulls the centre, moves x
between two steps, and pushes; training continues. A step waits if a chunk is due before its last exchange
ends. With one chunk it waits for every exchange, as in the published EASGD.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from edgeflock.client.training.elastic import Elastic
from edgeflock.client.training.interfaces import MAX_REFUSALS
from edgeflock.client.training.selector import LocalSteps
from edgeflock.shared.errors import BaseExpired, BaseInFuture, Diverged, Refused, ServerAtFault, StepTooLarge
from edgeflock.shared.model.chunks import ParameterRange, phase
from edgeflock.shared.protocol.messages import Model, Update

log = logging.getLogger(__name__)


class Averaging:
    """Runs the exchanges of a device's chunks: one request at a time, and x moves only between steps."""

    def __init__(
        self,
        pull: Callable[[int | None, int, int, int], Awaitable[Model]],
        push: Callable[[Update], Awaitable[None]],
        elastic: Elastic,
        chunks: list[ParameterRange],
        period: int,
        sequence: int,
    ) -> None:
        """`sequence` is the number of the device's last update; a chunk is exchanged every `period` steps."""
        self._pull, self._push = pull, push
        self._elastic = elastic
        self._chunks = chunks
        self._period = period
        self._sequence = sequence
        self._request_lock, self._step_lock = asyncio.Lock(), asyncio.Lock()
        self._pending: dict[int, asyncio.Task[None]] = {}
        self._steps = 0

    async def step(
        self, compute: Callable[..., Awaitable[LocalSteps]], gradient: Callable[..., LocalSteps]
    ) -> LocalSteps:
        """Take one step of the device, and start the exchanges that are due after it.

        Raises the error of a failed exchange: RunOver, RunReplaced, Diverged, ServerAtFault, ...
        """
        async with self._step_lock:
            done = await compute(gradient, self._elastic.gradient_point())
            self._elastic.descend(done)
        self._steps += 1
        self._raise_failures()
        for number, chunk in enumerate(self._chunks):
            if self._steps % self._period == phase(number, len(self._chunks), self._period):
                if earlier := self._pending.get(number):
                    await earlier
                self._pending[number] = asyncio.create_task(self._exchange(chunk))
        if len(self._chunks) == 1:
            await self.finish()
        return done

    async def finish(self) -> None:
        """Wait until no exchange is pending."""
        for number in list(self._pending):
            await self._pending[number]
            del self._pending[number]

    async def stop(self) -> None:
        """Cancel the pending exchanges."""
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)

    def _raise_failures(self) -> None:
        """Raise the error of an exchange that has failed."""
        for number, task in list(self._pending.items()):
            if task.done():
                del self._pending[number]
                task.result()

    async def _exchange(self, chunk: ParameterRange) -> None:
        """Exchange one chunk, and retry until the server accepts it."""
        too_large = 0
        while True:
            async with self._request_lock:
                model = await self._pull(self._elastic.base(chunk), 0, chunk.start, chunk.stop)
            async with self._step_lock:
                try:
                    self._elastic.take(chunk, model)
                except Refused as error:
                    raise ServerAtFault(f"the server's centre is not valid here: {error}") from error
                update, move = self._elastic.make_update(chunk, self._sequence + 1)
            try:
                async with self._request_lock:
                    await self._push(replace(update, sequence=self._sequence + 1))
                    self._sequence += 1
                return
            except (BaseExpired, BaseInFuture) as stale:
                log.info("%s", stale)
                async with self._step_lock:
                    self._elastic.take_back(move)
            except StepTooLarge as large:
                too_large += 1
                if too_large == MAX_REFUSALS:
                    raise Diverged(f"{too_large} updates in a row were refused: {large}") from large
                log.warning("%s", large)
                async with self._step_lock:
                    self._elastic.reset(chunk)
