"""Emulated devices: the real worker, without sockets and in virtual time.

A step takes the time of its device class. A message takes the time of its link (link.py).
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches, Shuffled
from edgeflock.client.data.acting import Actor
from edgeflock.client.data.batcher import Shards, require_first_shard
from edgeflock.client.data.injection import Injection
from edgeflock.client.data.own_test import OwnTest
from edgeflock.client.training import LocalSteps, Trainer, Worker
from edgeflock.client.training.personal import PersonalBackend
from edgeflock.client.training.sums import SumPolicy
from edgeflock.devices.emulation.config import DeviceClass
from edgeflock.devices.emulation.link import EmulatedLink
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.session import ClassTotals, Crashed
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.devices.emulation.streams import EmulatedStream
from edgeflock.shared.protocol.messages import Facts, Update, Welcome

Computed = TypeVar("Computed", Update, LocalSteps)


@dataclass(slots=True)
class EmulatedDevice:
    """One device, from its first join until it crashes or the run is over."""

    name: str
    kind: DeviceClass
    speed: DeviceSpeed
    server: EmulatedServer
    backend: Backend
    """The fleet shares it. It keeps no state between steps."""
    batches: Shuffled | EmulatedStream | Shards | Actor
    tally: ClassTotals
    random: np.random.Generator
    sharing: np.random.Generator
    """Draws the samples to share."""
    health: Callable[[], Facts]
    """Returns the device's telemetry."""
    shards: Sequence[str] = ()
    """The names of the data shards that the device holds, in a run of tasks."""
    _injected: Injection | None = None
    _personal: PersonalBackend | None = None
    """Holds the device's personal layers while it is away."""

    @property
    def own_test(self) -> OwnTest | None:
        """The device's held-out data, once it has joined, if the run evaluates on devices."""
        return self.batches.own_test if isinstance(self.batches, Shuffled) else None

    async def run(self) -> None:
        """Train, leave and come back as the device's class says."""
        try:
            async with AsyncExitStack() as streaming:
                if isinstance(self.batches, EmulatedStream):
                    await streaming.enter_async_context(self.batches)
                if self.kind.session_s:
                    await self._run_sessions()
                else:
                    await self._train(math.inf)
        except Crashed:
            self.tally.crashed += 1

    async def _run_sessions(self) -> None:
        session, away = self.kind.session_s, self.kind.away_s
        if self.random.random() < away / (session + away):
            await asyncio.sleep(self.random.exponential(away))
        while True:
            departure = asyncio.get_running_loop().time() + self.random.exponential(session)
            try:
                async with asyncio.timeout_at(departure):
                    return await self._train(departure)
            except TimeoutError:
                await asyncio.sleep(self.random.exponential(away))

    async def _train(self, end: float) -> None:
        link = EmulatedLink(
            self.server, self.name, self.kind, self.speed, self.tally, self.random, self.shards
        )
        batches: Batches = self.batches
        if self.kind.shares:
            batches = self._injected = Injection(self.batches, link.share, self.sharing, self.kind.batch_max)
            link.listen(self._injected.receive)

        async def trainer(welcome: Welcome) -> Trainer:
            backend = self.backend
            if welcome.personal is not None:
                backend = self._personal = self._personal or PersonalBackend(backend, welcome)
            batches.begin(welcome, backend)
            return Trainer(backend, batches, welcome)

        def is_leaving() -> bool:
            """Return whether the device leaves before it can send another update."""
            return asyncio.get_running_loop().time() + self._usual_step >= end

        reason = "killed: the connection broke"
        try:
            choose = self.batches.choose if isinstance(self.batches, Shards) else require_first_shard
            worker = Worker(
                link, trainer, batches, self._compute, self.health, is_leaving=is_leaving, choose=choose,
                sum_policy=SumPolicy(fewest=2, randbytes=self.random.bytes, rounding=self.random),
            )  # fmt: skip
            await worker.run()
            if is_leaving():  # it stays connected until its time to leave
                await asyncio.get_running_loop().create_future()
            reason = "finished: its part is done"
        finally:
            link.leave(reason)

    @property
    def _usual_step(self) -> float:
        """Average seconds of an update's local steps and of its way to the server."""
        local = self.server.config.local
        return local.steps * (self.speed.step + self.speed.sample * local.batch) + self.speed.latency

    async def _compute(self, step: Callable[..., Computed], *arguments: Any) -> Computed:
        """Return the result of `step` after the time that its steps take, if it trains.

        In a run of tasks, the last argument is a function that returns whether to skip the remaining steps.
        """
        done = step(*arguments)
        if not isinstance(done, Update | LocalSteps):  # a part of a secure sum
            return done
        if isinstance(done, LocalSteps):  # all devices share a backend, which reuses its gradient's memory
            done = replace(done, gradient=done.gradient.copy())
        config = self.server.config
        is_whole = isinstance(done, Update) or config.coordination.traits.private
        steps = config.local.steps if is_whole else 1
        each = done.samples / steps
        self.tally.samples += done.samples
        seconds = [self.speed.draw(self.random, each) for _ in range(steps)]
        if not isinstance(self.batches, Shards):
            await asyncio.sleep(sum(seconds))
            return done
        for one in seconds:
            await asyncio.sleep(one)
            if arguments[-1]():
                break
        return done
