"""A made-up link: what an emulated device sees of its server.

What a device sends is encoded, counted, decoded, admitted and journaled as by a server. A message takes its
latency, and its framed bytes over the rate of the link.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from edgeflock.devices.emulation.pace import Pace
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.server.coordination import Push
from edgeflock.server.engine import part_of
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.roster.connection import SECRET_BYTES
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Refused, RunComplete, RunOver
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
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
class ClassTotals:
    """What a class of devices did."""

    devices: int = 0
    updates: int = 0
    samples: int = 0
    """That they have trained on."""
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


class EmulatedLink:
    """One device's connection; a Server to its worker."""

    def __init__(
        self,
        server: EmulatedServer,
        name: str,
        pace: Pace,
        crash: float,
        tally: ClassTotals,
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
        version, sequence = engine.published.version, engine.last_sequence(self._device)
        greeting = welcome(
            "fleet", config, engine.layout, version, sequence, engine.start, secret=bytes(SECRET_BYTES)
        )
        as_received = wire.decode(wire.encode(greeting))  # its floats are single on the wire
        assert isinstance(as_received, Welcome)
        self._hello = replace(self._hello, secret=as_received.secret)
        return await self._down(as_received)

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        pull = Pull(base, held, start, stop)
        await self._up(pull)
        engine = self._server.engine
        model = engine.model(base, held, self._device, part_of(pull, engine.layout))
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
