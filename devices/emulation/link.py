"""An emulated link between a device and its server.

What a device sends is encoded, counted, decoded, admitted and journaled as by a server. A message takes the
latency of the link, and the time of its framed bytes at the link's rate.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import numpy as np

from edgeflock.client.training.conversation import DeviceConversation, ServerLink, check_answer
from edgeflock.devices.emulation.config import DeviceClass
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.session import ClassTotals, Crashed, EmulatedTaskFeed
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.server.roster import Device
from edgeflock.server.roster.connection import SECRET_BYTES
from edgeflock.server.sessions import Conversation
from edgeflock.server.sessions.conversation import DeviceEvents
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Record, Samples, Task, Update, Welcome

A = TypeVar("A")
T = TypeVar("T")


class EmulatedLink(ServerLink, DeviceEvents):
    """One device's connection: the server of its worker, and the port and the events of its session."""

    def __init__(
        self,
        server: EmulatedServer,
        name: str,
        kind: DeviceClass,
        speed: DeviceSpeed,
        tally: ClassTotals,
        random: np.random.Generator,
        shards: Sequence[str] = (),
    ) -> None:
        """Crashes are drawn from `random`."""
        self._server, self._kind, self._speed, self._tally = server, kind, speed, tally
        hello = Hello(PROTOCOL, name, b"", {}, kind.shares, shards=",".join(shards))
        self.conversation = DeviceConversation(hello)
        self._shards, self._random = shards, random
        self._device = server.engine.device_id(name)
        self._session: Conversation | None = None
        """The server's half of the conversation, once the device has joined."""
        self._tasks: EmulatedTaskFeed | None = None
        """In a run of tasks."""
        self._answer: Record | None = None
        """The last record from the server that may be an answer."""

    # The worker's server

    async def join(self) -> Welcome:
        hello = self.conversation.hello
        await self._send(hello)
        server, name, shares = self._server, hello.device, hello.shares
        device = server.connect(self._device, name, shares=shares, shards=self._shards)
        if server.engine.tasks is not None:
            self._tasks = EmulatedTaskFeed(server.context, server, device.id, self.send, self._draw_crash)
        self._session = Conversation(
            *(server.context, server, self, self, device, self._tasks),
            too_large_limit=math.inf,  # the worker gives up as soon, by itself
        )
        version, sequence = server.engine.published.version, server.engine.receipts.last_sequence(device.id)
        greeting = server.context.welcome(version, None, sequence, bytes(SECRET_BYTES))
        as_received = wire.decode(wire.encode(greeting))  # its floats are single on the wire
        await self._receive(as_received, wire.size(as_received))
        return self.conversation.begin(as_received)

    async def task(self) -> Task | None:
        tasks = self._tasks
        while tasks is not None and tasks.base is not None:
            if (shard := await tasks.next_shard()) is not None:
                task = Task(shard)
                await self.send(task)
                return task
            if tasks.base is not None:
                await self._server.wait_for_change()
        return None

    async def round_end(self) -> None:
        tasks = self._tasks
        assert tasks is not None, "only a run of tasks has rounds that end during a step"
        while tasks.base == self._server.engine.published.version:
            await self._server.wait_for_change()
        await tasks.end_round()

    async def share(self, samples: Samples) -> None:
        record, octets = await self._send(samples)
        await self._take(record, octets)
        self._tally.shared += samples.count
        self._tally.shared_bytes += wire.framed_size(len(octets), masked=True)

    def leave(self, reason: str) -> None:
        self._server.leave(self._device, reason)

    # The conversation's port

    async def send(self, record: Record) -> None:
        """Deliver a record. Raises what it means to the device: RunOver, or a Refused."""
        await self._receive(record, wire.size(record))
        self._answer = self.conversation.read(record) or self._answer

    async def send_octets(self, kind: type[Record], octets: bytes) -> None:
        samples = wire.decode(octets)
        await self._receive(samples, len(octets))
        self.conversation.read(samples)

    async def wait(self, awaited: Awaitable[T], take: Callable[[Record, bytes], None]) -> T:
        """Return the result of `awaited`. What the device sends meanwhile comes in calls of `share`."""
        return await awaited

    def charge_numbers(self, numbers: int) -> None:
        """Do nothing: the link's rate is the limit."""

    # The conversation's events. No monitor watches, nobody is quarantined, and updates carry all telemetry.

    async def wait_for_turn(self, device: Device) -> None:
        await self._server.wait_for_turn(device.id)

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        tally = self._tally
        tally.updates += 1
        tally.compressed += update.index_mode != sparse.DENSE
        tally.floats += update.count
        tally.staleness += staleness
        heard, total = device.connection.last_heard, self._server.traffic.total
        device.statistics.count(update, staleness, heard, heard, total.ingress)
        self._server.on_commit()
        if self._tasks is None:
            self._draw_crash()

    def count_duplicate(self, device: Device) -> None:
        self._tally.duplicates += 1

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        self._tally.refused += 1
        if device is not None:
            device.statistics.count_refusal()

    def _draw_crash(self) -> None:
        """Crash with the class's probability: after an update, before its answer."""
        if self._kind.crash and self._random.random() < self._kind.crash:
            raise Crashed

    # Both ways

    async def ask(self, question: Record, expected: type[A]) -> A:
        record, _ = await self._send(question)
        await self._take(record, b"")
        return check_answer(question, self._answer, expected)

    async def _take(self, record: Record, frame: bytes) -> None:
        assert self._session is not None, "a device first joins"
        await self._session.answer(record, frame)

    async def _send(self, record: Record) -> tuple[Record, bytes]:
        octets = wire.encode(record)
        size = wire.framed_size(len(octets), masked=True)
        await asyncio.sleep(self._speed.latency + size / self._speed.uplink)
        self._server.record_message(self._device)
        self._server.traffic.received[type(record)] += size
        self._server.traffic.total.ingress += size
        self._tally.ingress += size
        return wire.decode(octets), octets

    async def _receive(self, record: Record, octets: int) -> None:
        """Let the time of a record of so many bytes pass.

        The device gets the record itself. A copy of a model takes long, and the wire format keeps it exactly.
        """
        size = wire.framed_size(octets, masked=False)
        self._server.traffic.sent[type(record)] += size
        self._server.traffic.total.egress += size
        self._tally.egress += size
        await asyncio.sleep(self._speed.latency + size / self._speed.downlink)
