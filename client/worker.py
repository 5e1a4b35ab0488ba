"""What a device does: pull, step on its own data, keep the largest, push; again (AdaComp, algorithm 1)."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backend import Backend
from edgeflock.client.batcher import Batches, StreamOver
from edgeflock.client.encoding import Steps, encode_update, with_magnitudes
from edgeflock.client.replica import Replica
from edgeflock.client.transport import RunOver, RunReplaced
from edgeflock.shared import values
from edgeflock.shared.adaptive import Norms, follow, will_do
from edgeflock.shared.errors import BaseExpired, BaseInFuture, Diverged, LayoutMismatch
from edgeflock.shared.feedback import recall, remember
from edgeflock.shared.largest import select_largest
from edgeflock.shared.messages import Facts, Model, Receipt, Update, Welcome

log = logging.getLogger(__name__)

_HOPELESS = 20
"""Non-finite gradients in a row after which the model counts as diverged."""

_TELEMETRY_EVERY = 5.0
"""Seconds, at least, between updates that carry telemetry."""


class Server(Protocol):
    """The server as a worker sees it: transport.Link, or an emulated one."""

    async def join(self) -> Welcome: ...

    async def pull(self, base: int | None) -> Model: ...

    async def push(self, update: Update) -> Receipt: ...

    def speak_as(self, layout: bytes) -> None: ...


Compute = Callable[..., Awaitable[Any]]
"""compute(function, *arguments): its result, without holding up the event loop."""


@dataclass(slots=True)
class Progress:
    """What a worker has done so far."""

    updates: int = 0
    samples: int = 0
    refused: int = 0
    loss: float = 0.0


class Worker:
    """Trains until the server says stop."""

    def __init__(
        self,
        server: Server,
        backend: Callable[[Welcome], Awaitable[Backend]],
        batches: Batches,
        compute: Compute = asyncio.to_thread,
        health: Callable[[], Facts] = dict,
    ) -> None:
        """`backend` builds the training engine for the run that a Welcome describes. `health` tells how the
        device does.
        """
        self._server = server
        self._make_backend = backend
        self._batches = batches
        self._compute = compute
        self._health = health
        self._memory: NDArray[np.float32] | None = None
        """What earlier updates left out (feedback.py), if the run asks for it."""
        self._under_way: tuple[NDArray[np.int64] | slice, NDArray[np.float32]] | None = None
        """(indices, values) that left it with the last update."""
        self._norms: Norms | None = None
        """Of the gradients of this run (adaptive.py), if it asks for it."""
        self._telemetry_due = -math.inf
        """When the next update is to carry some, by the event loop's clock."""
        self.progress = Progress()

    async def run(self) -> Progress:
        """Take part in the server's run, and in the next one if the server is set up anew meanwhile.

        Raises ConfigError if model and data do not fit or the model diverges, SessionRefused if the server
        will not have this device.
        """
        while True:
            try:
                await self._take_part(await self._server.join())
            except RunReplaced as replaced:
                self._batches.take_back()
                log.warning("%s", replaced)
            except (RunOver, StreamOver) as over:
                self._batches.take_back()
                log.info("%s", over)
                return self.progress

    async def _take_part(self, welcome: Welcome) -> None:
        backend = await self._make_backend(welcome)
        layout = backend.layout
        if list(layout.shapes()) != welcome.layout:
            raise LayoutMismatch(f"{welcome.model} has another layout here than on the server")
        self._server.speak_as(layout.digest)
        replica = Replica(layout)
        self._memory = self._norms = None
        self._telemetry_due = -math.inf
        replica.take(await self._server.pull(None))
        sequence = welcome.sequence
        while True:
            await self._batches.ready(welcome.local_steps)
            update: Update = await self._compute(self.step, backend, replica, welcome, sequence + 1)
            update = self._with_telemetry(update, asyncio.get_running_loop().time())
            try:
                receipt = await self._server.push(update)
            except (BaseExpired, BaseInFuture) as stale:
                self.progress.refused += 1
                log.info("%s", stale)
                self._take_back(welcome.feedback)
                self._batches.take_back()
                replica.take(await self._server.pull(None))
                continue
            sequence = update.sequence
            self._batches.settle()
            self.progress.updates += 1
            self.progress.samples += update.samples
            self.progress.loss = update.loss
            assert receipt.model is not None, "asked for with the push"
            replica.take(receipt.model)

    def step(self, backend: Backend, replica: Replica, welcome: Welcome, sequence: int) -> Update:
        """Steps on the next batches, as one update (AdaComp, algorithm 1, lines 5 and 6)."""
        assert replica.version is not None
        steps = self._descend(backend, replica.theta, welcome)
        layout = backend.layout.parameters
        if welcome.select >= 1:
            return encode_update(steps, steps.gradient, None, layout, welcome, sequence, replica.version)
        corrected = recall(self._memory, steps.gradient)
        selected = select_largest(corrected, layout, welcome.select, welcome.balance)
        where: NDArray[np.int64] | None = selected
        if welcome.threshold:
            self._norms = follow(self._norms, corrected, selected)
            if not will_do(self._norms, welcome.threshold):
                where, welcome = None, with_magnitudes(welcome)
        if welcome.feedback:
            sent = slice(None) if where is None else where
            self._memory = remember(corrected, sent, welcome.feedback)
            self._under_way = sent, corrected[sent].copy()
        return encode_update(steps, corrected, where, layout, welcome, sequence, replica.version)

    def _with_telemetry(self, update: Update, now: float) -> Update:
        """`update`; if it is time, with what there is to tell about the device."""
        if now < self._telemetry_due:
            return update
        facts = {**self._health(), **self._batches.telemetry()}
        if not facts:
            return update
        self._telemetry_due = now + _TELEMETRY_EVERY
        return replace(update, facts=facts)

    def _take_back(self, decay: float) -> None:
        """The last update was refused: remember what it held as if it had not been sent."""
        if self._memory is not None and self._under_way is not None:
            where, kept = self._under_way
            self._memory[where] = kept * np.float32(decay)

    def _descend(self, backend: Backend, theta: NDArray[np.float32], welcome: Welcome) -> Steps:
        """The run's local steps from theta on, together."""
        first = self._gradient(backend, theta, welcome.batch)
        if welcome.local_steps == 1:
            return first
        theta, step, steps = theta.copy(), first, welcome.local_steps
        parameters = theta[: first.gradient.size]
        loss, samples = first.loss, first.samples
        gradient, statistics = first.gradient.copy(), first.statistics.copy()
        for _ in range(steps - 1):
            parameters -= np.float32(welcome.local_rate) * step.gradient
            step = self._gradient(backend, theta, welcome.batch)
            gradient += step.gradient
            statistics += step.statistics
            loss += step.loss
            samples += step.samples
        return Steps(loss / steps, gradient, statistics / np.float32(steps), samples)

    def _gradient(self, backend: Backend, theta: NDArray[np.float32], batch: int) -> Steps:
        """A step on the next batch."""
        for _ in range(_HOPELESS):
            x, y = self._batches.take(batch)
            loss, gradient, statistics = backend.gradient(theta, x, y)
            if np.isfinite(gradient).all() and (np.abs(statistics) <= values.LARGEST_STATISTIC).all():
                return Steps(loss, gradient, statistics, len(y))
        beyond = f" or statistics beyond {values.LARGEST_STATISTIC:g}" if backend.layout.buffers else ""
        raise Diverged(
            f"{_HOPELESS} batches in a row gave NaN or infinite gradients{beyond}: the model has diverged or "
            "the data are broken; lower coordination.learning_rate, scale the inputs"
        )
