"""An emulated link between a device and its server.

What a device sends is encoded, counted, decoded, admitted and journaled as by a server. A message takes the
latency of the link, and the time of its framed bytes at the link's rate.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, requested_slice
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.roster import Device
from edgeflock.server.roster.connection import SECRET_BYTES
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import AlreadyComputed, Refused, RunComplete, RunOver
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import (
    PROTOCOL,
    Hello,
    Model,
    Over,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    Stop,
    Task,
    Update,
    Welcome,
)

FromServer = TypeVar("FromServer", Welcome, Model, Receipt, Refusal, Stop, Samples, Task, Over)


class Crashed(Exception):
    """The device has stopped permanently, and its data are lost."""


@dataclass(slots=True)
class ClassTotals:
    """Totals of a class of devices."""

    devices: int = 0
    updates: int = 0
    samples: int = 0
    """Samples that the devices have trained on."""
    compressed: int = 0
    """Updates that held a selection of the gradient, not the whole gradient."""
    floats: int = 0
    """Gradient values that the devices sent."""
    refused: int = 0
    duplicates: int = 0
    """Updates of tasks that another device had computed before."""
    crashed: int = 0
    staleness: int = 0
    """Sum of version - base over the class's updates."""
    ingress: int = 0
    egress: int = 0
    shared: int = 0
    """Samples that the devices shared with others."""
    shared_bytes: int = 0
    """Ingress of the shared samples, a part of `ingress`."""


class EmulatedLink:
    """One device's connection. It is the ServerLink of the device's worker."""

    def __init__(
        self,
        server: EmulatedServer,
        name: str,
        speed: DeviceSpeed,
        crash: float,
        tally: ClassTotals,
        random: np.random.Generator,
        *,
        shares: bool = False,
        shards: Sequence[str] = (),
    ) -> None:
        self._server = server
        self._hello = Hello(PROTOCOL, name, b"", {}, shares, shards=",".join(shards))
        self._shards = shards
        self._base: int | None = None
        """In a run of tasks: the base of the round in which the device takes part, or None."""
        self._speed = speed
        self._crash = crash
        self._tally = tally
        self._random = random
        self._device = server.engine.device_id(name)
        self._listener: Callable[[Samples], None] = lambda samples: None

    async def join(self) -> Welcome:
        await self._send(self._hello)
        name, shares = self._hello.device, self._hello.shares
        self._server.connect(self._device, name, shares=shares, shards=self._shards)
        engine, config = self._server.engine, self._server.config
        version, sequence = engine.published.version, engine.receipts.last_sequence(self._device)
        greeting = welcome(
            *("fleet", config, engine.layout, version, sequence, engine.start),
            secret=bytes(SECRET_BYTES),
            shape=self._server.input,
            held_out=self._server.held_out,
            personal=self._server.personal,
        )
        as_received = wire.decode(wire.encode(greeting))  # its floats are single on the wire
        assert isinstance(as_received, Welcome)
        self._hello = replace(self._hello, secret=as_received.secret)
        return await self._receive(as_received)

    async def pull(self, base: int | None, held: int = 0, start: int = 0, stop: int = 0) -> Model:
        pull = Pull(base, held, start, stop)
        await self._send(pull)
        engine = self._server.engine
        await self._wait_for_turn()
        model = engine.outlet.model(base, held, self._device, requested_slice(pull, engine.layout))
        self._base = model.version
        await self._deliver()
        return await self._receive(model)

    async def _wait_for_turn(self) -> None:
        """Wait until the device may take part in the round, if the run has turns. Raises RunOver."""
        engine = self._server.engine
        while (turns := engine.turns) is not None:
            if engine.published.complete:
                stop = Stop(f"the run is over: {engine.published.end_reason}")
                raise RunOver((await self._receive(stop)).reason)
            if self._device in turns.members:
                return
            await self._server.round_changed.wait()

    async def push(self, update: Update) -> Receipt:
        record, frame = await self._send(update)
        assert isinstance(record, Update)
        try:
            accepted = await self._server.push(self._push(record, frame))
        except Refused as refusal:
            await self._send_refusal(refusal, record)
            raise
        self._count_applied(record, accepted)
        if self._crash and self._random.random() < self._crash:
            raise Crashed
        await self._deliver()
        return await self._receive(accepted.receipt)

    async def offer(self, update: Update) -> Task:
        record, frame = await self._send(update)
        assert isinstance(record, Update)
        counted = True
        try:
            answer = self._server.submit(self._push(record, frame))
        except AlreadyComputed:
            counted = False
            self._tally.duplicates += 1
        except Refused as refusal:
            await self._send_refusal(refusal, record)
            raise
        else:
            answer.add_done_callback(partial(self._count_settled, record))
        if self._crash and self._random.random() < self._crash:
            raise Crashed
        await self._deliver()
        return await self._receive(Task(await self._next_shard(), counted))

    async def task(self) -> Task | None:
        while self._base is not None:
            if (shard := await self._next_shard()) is not None:
                return await self._receive(Task(shard))
            if self._base is not None:
                await self._server.round_changed.wait()
        return None

    async def round_end(self) -> None:
        while self._base == self._server.engine.published.version:
            await self._server.round_changed.wait()
        await self._end_round()

    async def _next_shard(self) -> int | None:
        """Return the next data shard of the device's round. If the round is over, first tell the device."""
        if self._base is None:
            return None
        shard = self._server.hand_out(self._device, self._base)
        if self._base != self._server.engine.published.version or self._server.engine.published.complete:
            await self._end_round()
        return shard

    async def _end_round(self) -> None:
        if self._base is None:
            return
        self._base = None
        published = self._server.engine.published
        if published.complete:
            raise RunOver((await self._receive(Stop(f"the run is over: {published.end_reason}"))).reason)
        await self._receive(Over(published.version))

    def _push(self, record: Update, frame: bytes) -> Push:
        frame_kept = frame if self._server.keep_frames else b""
        return Push(self._device, asyncio.get_running_loop().time(), record, frame_kept)

    async def _send_refusal(self, refusal: Refused, record: Update) -> None:
        """Send the refusal to the device. Raises RunOver if the run is over."""
        if isinstance(refusal, RunComplete):
            raise RunOver((await self._receive(Stop(str(refusal)))).reason) from None
        self._tally.refused += 1
        self._record.statistics.count_refusal()
        await self._receive(Refusal(refusal.code, str(refusal), record.sequence))

    def _count_settled(self, record: Update, answer: asyncio.Future[Accepted]) -> None:
        """Count an update that was held until its round ended."""
        if answer.cancelled():
            return
        if answer.exception() is None:
            self._count_applied(record, answer.result())
        else:
            self._tally.refused += 1

    def _count_applied(self, record: Update, accepted: Accepted) -> None:
        tally = self._tally
        tally.updates += 1
        tally.compressed += record.index_mode != sparse.DENSE
        tally.floats += record.count
        tally.staleness += accepted.staleness
        known, total = self._record, self._server.traffic.total
        heard = known.connection.last_heard
        known.statistics.count(record, accepted.staleness, heard, heard, total.ingress)
        self._server.on_commit()

    async def share(self, samples: Samples) -> None:
        record, octets = await self._send(samples)
        assert isinstance(record, Samples)
        self._server.relay.share(self._device, record, octets)
        self._tally.shared += record.count
        self._tally.shared_bytes += wire.framed_size(len(octets), masked=True)

    def listen(self, listener: Callable[[Samples], None]) -> None:
        self._listener = listener

    async def _deliver(self) -> None:
        """Deliver the samples that others have shared, before an answer."""
        for _, octets in self._server.relay.take(self._device):
            samples = wire.decode(octets)
            assert isinstance(samples, Samples)
            self._listener(await self._receive(samples))

    @property
    def _record(self) -> Device:
        """The server's record of this device."""
        return self._server.devices[self._device]

    def leave(self, reason: str) -> None:
        self._server.leave(self._device, reason)

    def announce_layout(self, layout: bytes) -> None:
        self._hello = replace(self._hello, layout=layout)

    async def _send(self, record: Record) -> tuple[Record, bytes]:
        octets = wire.encode(record)
        size = wire.framed_size(len(octets), masked=True)
        await asyncio.sleep(self._speed.latency + size / self._speed.uplink)
        self._server.record_message(self._device)
        self._server.traffic.received[type(record)] += size
        self._server.traffic.total.ingress += size
        self._tally.ingress += size
        return wire.decode(octets), octets

    async def _receive(self, record: FromServer) -> FromServer:
        """Return the record itself. A copy of a model takes long, and the wire format keeps it exactly."""
        size = wire.framed_size(wire.size(record), masked=False)
        self._server.traffic.sent[type(record)] += size
        self._server.traffic.total.egress += size
        self._tally.egress += size
        await asyncio.sleep(self._speed.latency + size / self._speed.downlink)
        return record
