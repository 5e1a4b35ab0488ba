"""Emulated devices: the real worker and the real engine; only sockets and seconds are made up.

A step takes its class's time; messages take theirs (link.py).
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches, Shuffled
from edgeflock.client.data.acting import Actor
from edgeflock.client.data.injection import Injected
from edgeflock.client.training import LocalSteps, Trainer, Worker
from edgeflock.client.training.shards import Shards, only
from edgeflock.devices.emulation.config import DeviceClass
from edgeflock.devices.emulation.link import ClassTotals, Crashed, EmulatedLink
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.devices.emulation.streams import EmulatedStream
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Facts, Update, Welcome

Computed = TypeVar("Computed", Update, LocalSteps)

Recorded = Callable[[int, float], Update | None]
"""(sequence number, time) -> the update that an interrupted run of the same fleet pushed under it by then."""


@dataclass(frozen=True, slots=True)
class _Resumed:
    """A trainer that does not compute again what was computed before."""

    trainer: Trainer
    batches: Batches
    welcome: Welcome
    recorded: Recorded
    until: float
    """The virtual second until which the device lives: what was pushed later, another one computed."""

    @property
    def layout(self) -> Layout:
        return self.trainer.layout

    def step(
        self, theta: NDArray[np.float32], base: int, sequence: int, stopped: Callable[[], bool] = bool
    ) -> Update:
        update = self.recorded(sequence, self.until)
        if update is None or update.base != base:
            return self.trainer.step(theta, base, sequence, stopped)
        for _ in range(self.welcome.local_steps):  # as the steps would have
            self.batches.take(self.welcome.batch)
        return update

    def gradient(self, theta: NDArray[np.float32]) -> LocalSteps:
        return self.trainer.gradient(theta)

    def take_back(self) -> None:
        self.trainer.take_back()

    def undo(self) -> None:
        self.trainer.undo()

    def forget(self) -> None:
        self.trainer.forget()

    def take_fleet(self, moments: bytes, labels: bytes) -> None:
        self.trainer.take_fleet(moments, labels)


@dataclass(slots=True)
class EmulatedDevice:
    """One device, from its first joining until it crashes or the run is over."""

    name: str
    kind: DeviceClass
    pace: DeviceSpeed
    server: EmulatedServer
    backend: Backend
    """Shared by the fleet: it keeps nothing between steps."""
    batches: Shuffled | EmulatedStream | Shards | Actor
    tally: ClassTotals
    random: np.random.Generator
    sharing: np.random.Generator
    """Draws the samples to share."""
    recorded: Recorded
    health: Callable[[], Facts]
    """What it tells of itself."""
    shards: Sequence[str] = ()
    """The names of those that it holds, in a run of tasks."""
    _injected: Injected | None = None

    async def live(self) -> None:
        """Take part, leave and come back, as its class does."""
        try:
            async with AsyncExitStack() as streaming:
                if isinstance(self.batches, EmulatedStream):
                    await streaming.enter_async_context(self.batches)
                if self.kind.session_s:
                    await self._come_and_go()
                else:
                    await self._train(math.inf)
        except Crashed:
            self.tally.crashed += 1

    async def _come_and_go(self) -> None:
        session, away = self.kind.session_s, self.kind.away_s
        if self.random.random() < away / (session + away):
            await asyncio.sleep(self.random.exponential(away))
        while True:
            leaving = asyncio.get_running_loop().time() + self.random.exponential(session)
            try:
                async with asyncio.timeout_at(leaving):
                    return await self._train(leaving)
            except TimeoutError:
                await asyncio.sleep(self.random.exponential(away))

    async def _train(self, until: float) -> None:
        shares = self.kind.shares
        link = EmulatedLink(
            self.server,
            self.name,
            self.pace,
            self.kind.crash,
            self.tally,
            self.random,
            shares=shares,
            shards=self.shards,
        )
        batches: Batches = self.batches
        if shares:
            batches = self._injected = Injected(self.batches, link.share, self.sharing, self.kind.batch_max)
            link.listen(self._injected.receive)

        async def trainer(welcome: Welcome) -> _Resumed:
            batches.begin(welcome, self.backend)
            training = Trainer(self.backend, batches, welcome)
            return _Resumed(training, batches, welcome, self.recorded, until)

        def leaving() -> bool:
            """Whether it will be gone before it could send another update."""
            return asyncio.get_running_loop().time() + self._usual_step >= until

        why = "killed: the line broke without a word"
        try:
            choose = self.batches.choose if isinstance(self.batches, Shards) else only
            worker = Worker(
                link, trainer, batches, self._compute, self.health, leaving=leaving, choose=choose
            )
            await worker.run()
            if leaving():  # it is there until its time has come
                await asyncio.get_running_loop().create_future()
            why = "finished: its part is done"
        finally:
            link.leave(why)

    @property
    def _usual_step(self) -> float:
        """Seconds that the local steps of an update take, on average, and its way to the server."""
        run = self.server.config.run
        return run.local_steps * (self.pace.step + self.pace.sample * run.batch) + self.pace.latency

    async def _compute(self, step: Callable[..., Computed], *arguments: Any) -> Computed:
        """The update of `step`, or the one step of the device's own, after the time that its steps take.

        Of tasks the last argument says, after each, whether the others are needed at all.
        """
        done = step(*arguments)
        if isinstance(done, LocalSteps):  # all devices have one backend, whose gradient lasts until its next
            done = replace(done, gradient=done.gradient.copy())
        steps = self.server.config.run.local_steps if isinstance(done, Update) else 1
        each = done.samples / steps
        self.tally.samples += done.samples
        seconds = [self.pace.draw(self.random, each) for _ in range(steps)]
        if not isinstance(self.batches, Shards):
            await asyncio.sleep(sum(seconds))
            return done
        for one in seconds:
            await asyncio.sleep(one)
            if arguments[-1]():
                break
        return done
