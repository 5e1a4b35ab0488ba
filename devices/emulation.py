"""Emulated devices: the real worker and the real engine; only sockets and seconds are made up.

What a device sends is encoded, counted, decoded, admitted and journaled as by a server. A message takes its
latency, and its framed bytes over the rate of the link; a step takes its class's time.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from edgeflock.client.backend import Backend
from edgeflock.client.batcher import Shuffled
from edgeflock.client.replica import Replica
from edgeflock.client.transport import RunOver
from edgeflock.client.worker import Worker
from edgeflock.devices.fleet_config import DeviceClass, profile
from edgeflock.devices.streams import EmulatedStream
from edgeflock.server.coordination import Rounds
from edgeflock.server.engine import Engine, Push
from edgeflock.server.open_round import OpenRound
from edgeflock.server.traffic import Traffic
from edgeflock.server.welcome import welcome
from edgeflock.shared import sparse, wire
from edgeflock.shared.config import Config
from edgeflock.shared.errors import Refused, RunComplete
from edgeflock.shared.messages import (
    PROTOCOL,
    Hello,
    Model,
    Pull,
    Receipt,
    Record,
    Refusal,
    Stop,
    Update,
    Welcome,
)

Down = TypeVar("Down", Welcome, Model, Receipt, Refusal, Stop)


class Crashed(Exception):
    """The device has stopped for ever, and its data are lost."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a class of devices is. Seconds and bytes per second; infinite rates take no time."""

    step: float
    spread: float
    exponential: bool
    uplink: float
    downlink: float
    latency: float
    sample: float = 0.0
    """More of the step for each of its samples."""

    @classmethod
    def of(cls, kind: DeviceClass, flops: int) -> "Pace":
        """The pace of `kind` at a model whose step takes `flops` floating-point operations."""
        made = profile(kind.profile) if kind.profile else None

        def get(key: str, default: float) -> float:
            own = getattr(kind, key)
            value = own if own is not None else getattr(made, key) if made else default
            return float(value)

        if kind.step_ms is not None:
            step_ms = kind.step_ms
        else:
            assert made is not None, "a class has a profile or a step time"
            step_ms = made.overhead_ms + flops / made.gflops / 1e6
        return cls(
            step_ms / 1e3,
            get("spread", 0.0),
            kind.timing == "exponential",
            get("uplink_mbps", math.inf) * 125e3,
            get("downlink_mbps", math.inf) * 125e3,
            get("latency_ms", 0.0) / 1e3,
            kind.sample_ms / 1e3,
        )

    def draw(self, random: np.random.Generator, samples: float = 0.0) -> float:
        """The time of one step on so many samples."""
        mean = self.step + self.sample * samples
        if self.exponential:
            return float(random.exponential(mean))
        variance = math.log1p(self.spread**2)
        return float(random.lognormal(math.log(mean) - variance / 2, math.sqrt(variance)))


@dataclass(slots=True)
class Tally:
    """What a class of devices did."""

    devices: int = 0
    updates: int = 0
    compressed: int = 0
    """Updates that held a selection of the gradient, not all of it."""
    refused: int = 0
    crashed: int = 0
    staleness: int = 0
    """Sum over its updates of version - base."""
    ingress: int = 0
    egress: int = 0


class EmulatedServer:
    """The engine behind made-up links. `committed` is to be called after every receipt."""

    def __init__(
        self, config: Config, engine: Engine, committed: Callable[[], None], *, keep_frames: bool
    ) -> None:
        self.config = config
        self.keep_frames = keep_frames
        self.engine = engine
        self.traffic = Traffic()
        """WebSocket messages, framed. The HTTP request that opens a session is not counted."""
        self.committed = committed
        self._present: set[int] = set()
        rounds = Rounds.of(config.coordination)
        self._round = OpenRound(rounds, lambda: self._present, self._look) if rounds else None

    async def push(self, push: Push) -> Receipt:
        """The receipt of one update. Raises what it is refused for."""
        (answer,) = self.engine.commit([push])
        if isinstance(answer, Refused):
            raise answer
        return answer or await self._hold(push.device)

    async def _hold(self, device: int) -> Receipt:
        """As server/writer.py does."""
        assert self._round is not None, "only rounds hold"
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._round.hold(device, answer)
        self._look()
        return await answer

    def arrive(self, device: int) -> None:
        self._present.add(device)

    def leave(self, device: int) -> None:
        self._present.discard(device)
        self._look()

    def _look(self) -> None:
        """End the round if it is over."""
        if self._round is None or not self._round.is_over:
            return
        held = self._round.end()
        for push, receipt in self.engine.end_round():
            if not held[push.device].done():  # its device may have left
                held[push.device].set_result(receipt)


class EmulatedLink:
    """One device's connection; a Server to its worker."""

    def __init__(
        self,
        server: EmulatedServer,
        name: str,
        pace: Pace,
        crash: float,
        tally: Tally,
        random: np.random.Generator,
    ) -> None:
        self._server = server
        self._hello = Hello(PROTOCOL, name, b"", {})
        self._pace = pace
        self._crash = crash
        self._tally = tally
        self._random = random
        self._device = server.engine.device_id(name)

    async def join(self) -> Welcome:
        await self._up(self._hello)
        self._server.arrive(self._device)
        engine, config = self._server.engine, self._server.config
        greeting = welcome("fleet", config, engine.layout, engine.version, engine.last_sequence(self._device))
        as_received = wire.decode(wire.encode(greeting))  # its floats are single on the wire
        assert isinstance(as_received, Welcome)
        return await self._down(as_received)

    async def pull(self, base: int | None) -> Model:
        await self._up(Pull(base))
        return await self._down(self._server.engine.model(base))

    async def push(self, update: Update) -> Receipt:
        record, frame = await self._up(update)
        assert isinstance(record, Update)
        server, tally = self._server, self._tally
        behind = server.engine.version - record.base
        kept = frame if server.keep_frames else b""
        try:
            receipt = await server.push(Push(self._device, asyncio.get_running_loop().time(), record, kept))
        except RunComplete as complete:
            raise RunOver((await self._down(Stop(str(complete)))).reason) from None
        except Refused as refusal:
            tally.refused += 1
            await self._down(Refusal(refusal.code, str(refusal), record.sequence))
            raise
        tally.updates += 1
        tally.compressed += record.index_mode != sparse.DENSE
        tally.staleness += behind
        server.committed()
        if self._crash and self._random.random() < self._crash:
            raise Crashed
        return await self._down(receipt)

    def leave(self) -> None:
        self._server.leave(self._device)

    def speak_as(self, layout: bytes) -> None:
        self._hello = replace(self._hello, layout=layout)

    async def _up(self, record: Record) -> tuple[Record, bytes]:
        octets = wire.encode(record)
        size = wire.framed_size(len(octets), masked=True)
        await asyncio.sleep(self._pace.latency + size / self._pace.uplink)
        self._server.traffic.received[type(record)] += size
        self._server.traffic.total.ingress += size
        self._tally.ingress += size
        return wire.decode(octets), octets

    async def _down(self, record: Down) -> Down:
        """The record itself: a model is long to copy, and the wire keeps it exactly."""
        size = wire.framed_size(wire.size(record), masked=False)
        self._server.traffic.sent[type(record)] += size
        self._server.traffic.total.egress += size
        self._tally.egress += size
        await asyncio.sleep(self._pace.latency + size / self._pace.downlink)
        return record


Recorded = Callable[[int, float], Update | None]
"""(sequence number, time) -> the update that an interrupted run of the same fleet pushed under it by then."""


class _Worker(Worker):
    """A worker that does not compute again what was computed before."""

    def __init__(self, recorded: Recorded, until: float, *arguments: Any) -> None:
        """It lives until virtual second `until`: what was pushed later, another one computed."""
        super().__init__(*arguments)
        self._recorded = recorded
        self._until = until

    def step(self, backend: Backend, replica: Replica, welcome: Welcome, sequence: int) -> Update:
        update = self._recorded(sequence, self._until)
        if update is None or update.base != replica.version:
            return super().step(backend, replica, welcome, sequence)
        for _ in range(welcome.local_steps):  # as the steps would have
            self._batches.take(welcome.batch)
        return update


@dataclass(slots=True)
class EmulatedDevice:
    """One device, from its first joining until it crashes or the run is over."""

    name: str
    kind: DeviceClass
    pace: Pace
    server: EmulatedServer
    backend: Backend
    """Shared by the fleet: it keeps nothing between steps."""
    batches: Shuffled | EmulatedStream
    tally: Tally
    random: np.random.Generator
    recorded: Recorded

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
        link = EmulatedLink(self.server, self.name, self.pace, self.kind.crash, self.tally, self.random)
        worker = _Worker(self.recorded, until, link, self._backend, self.batches, self._compute)
        try:
            await worker.run()
        finally:
            link.leave()

    async def _backend(self, welcome: Welcome) -> Backend:
        return self.backend

    async def _compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `function`; if it is an update, after the time that its steps take."""
        result = function(*arguments)
        if isinstance(result, Update):
            steps = self.server.config.run.local_steps
            each = result.samples / steps
            await asyncio.sleep(sum(self.pace.draw(self.random, each) for _ in range(steps)))
        return result
