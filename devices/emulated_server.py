"""The engine behind made-up links: what an emulated device sees of its server.

What a device sends is encoded, counted, decoded, admitted and journaled as by a server. A message takes its
latency, and its framed bytes over the rate of the link.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from edgeflock.devices.pace import Pace
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Engine
from edgeflock.server.outcomes import Accepted, Answer
from edgeflock.server.relay import Relay
from edgeflock.server.traffic import Traffic
from edgeflock.server.welcome import welcome
from edgeflock.server.writer import settle
from edgeflock.shared import sparse, wire
from edgeflock.shared.config import Config
from edgeflock.shared.errors import Refused, RunComplete, RunOver
from edgeflock.shared.messages import (
    PROTOCOL,
    Hello,
    Model,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    Stop,
    Update,
    Welcome,
)

Down = TypeVar("Down", Welcome, Model, Receipt, Refusal, Stop, Samples)


class Crashed(Exception):
    """The device has stopped for ever, and its data are lost."""


@dataclass(slots=True)
class Tally:
    """What a class of devices did."""

    devices: int = 0
    updates: int = 0
    compressed: int = 0
    """Updates that held a selection of the gradient, not all of it."""
    floats: int = 0
    """Values of gradients that were sent."""
    refused: int = 0
    crashed: int = 0
    staleness: int = 0
    """Sum over its updates of version - base."""
    ingress: int = 0
    egress: int = 0
    shared: int = 0
    """Samples that it gave to others, and"""
    shared_bytes: int = 0
    """the ingress of these; a part of `ingress`."""


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
        self.relay = Relay(config.injection, config.limits.samples)
        self._held: dict[Push, asyncio.Future[Accepted]] = {}
        self._alarm: asyncio.TimerHandle | None = None

    async def push(self, push: Push) -> Accepted:
        """What comes of one update. Raises what it is refused for."""
        answer = self._commit([push]).get(push)
        if answer is None:
            held: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
            self._held[push] = held
            return await held
        if isinstance(answer, Refused):
            raise answer
        return answer

    def arrive(self, device: int, *, shares: bool) -> None:
        self.engine.arrived(device)
        if shares:
            self.relay.join(device)

    def leave(self, device: int) -> None:
        self.engine.left(device)
        self.relay.leave(device)
        self._commit([])

    def _commit(self, pushes: list[Push]) -> dict[Push, Answer]:
        """What comes of `pushes`. Those that were held until now have their answer."""
        loop = asyncio.get_running_loop()
        settled = dict(self.engine.commit(pushes, loop.time()))
        for push, answer in settled.items():
            if push in self._held:
                settle(self._held.pop(push), answer)
        if self._alarm is not None:
            self._alarm.cancel()
        due = self.engine.due
        self._alarm = None if due is None else loop.call_at(due, self._commit, [])
        return settled


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
        *,
        shares: bool = False,
    ) -> None:
        self._server = server
        self._hello = Hello(PROTOCOL, name, b"", {}, shares)
        self._pace = pace
        self._crash = crash
        self._tally = tally
        self._random = random
        self._device = server.engine.device_id(name)
        self._listener: Callable[[Samples], None] = lambda samples: None

    async def join(self) -> Welcome:
        await self._up(self._hello)
        self._server.arrive(self._device, shares=self._hello.shares)
        engine, config = self._server.engine, self._server.config
        greeting = welcome(
            "fleet", config, engine.layout, engine.published.version, engine.last_sequence(self._device)
        )
        as_received = wire.decode(wire.encode(greeting))  # its floats are single on the wire
        assert isinstance(as_received, Welcome)
        return await self._down(as_received)

    async def pull(self, base: int | None) -> Model:
        await self._up(Pull(base))
        model = self._server.engine.model(base)
        await self._deliver()
        return await self._down(model)

    async def push(self, update: Update) -> Receipt:
        record, frame = await self._up(update)
        assert isinstance(record, Update)
        server, tally = self._server, self._tally
        kept = frame if server.keep_frames else b""
        try:
            accepted = await server.push(Push(self._device, asyncio.get_running_loop().time(), record, kept))
        except RunComplete as complete:
            raise RunOver((await self._down(Stop(str(complete)))).reason) from None
        except Refused as refusal:
            tally.refused += 1
            await self._down(Refusal(refusal.code, str(refusal), record.sequence))
            raise
        tally.updates += 1
        tally.compressed += record.index_mode != sparse.DENSE
        tally.floats += record.count
        tally.staleness += accepted.staleness
        server.committed()
        if self._crash and self._random.random() < self._crash:
            raise Crashed
        await self._deliver()
        return await self._down(accepted.receipt)

    async def share(self, samples: Samples) -> None:
        record, octets = await self._up(samples)
        assert isinstance(record, Samples)
        self._server.relay.share(self._device, record, octets)
        self._tally.shared += record.count
        self._tally.shared_bytes += wire.framed_size(len(octets), masked=True)

    def listen(self, listener: Callable[[Samples], None]) -> None:
        self._listener = listener

    async def _deliver(self) -> None:
        """What others have shared by now, before an answer."""
        for _, octets in self._server.relay.take(self._device):
            samples = wire.decode(octets)
            assert isinstance(samples, Samples)
            self._listener(await self._down(samples))

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
