"""A device behind a gateway, at its leader (docs/gateways.md).

A gateway holds its devices' sockets. The leader admits the devices, ends their former sessions and answers
their updates, as it does for its own. Each has a `RelayedDevice` in place of a session.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from edgeflock.server.connections import Meter
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.roster import Device, Order
from edgeflock.server.sessions.answers import PendingUpdate, settle
from edgeflock.server.sessions.conversation import count_outcome
from edgeflock.server.sessions.device_admission import ServerAdmission
from edgeflock.server.sessions.task_feed import TaskFeed
from edgeflock.shared.errors import Malformed, Quarantined, Refused, SessionRefused, Superseded
from edgeflock.shared.protocol import gateway, gateway_coding, wire
from edgeflock.shared.protocol.messages import Record, Samples, Telemetry, Update

_ALIVE_SECONDS = 100.0
"""Seconds that a gateway may take to say whether a device is alive. It asks the device for 90."""

_LEAVE_SECONDS = 6.0
"""Seconds that a gateway may take to end a session. A device may take four of them."""

_BYTES_LIMIT = 1 << 62
"""The most bytes of all traffic: journals store them as signed 64-bit integers."""


class GatewaySender(Protocol):
    """The connection of the device's gateway."""

    name: str
    longest_update: int
    """The most bytes of an update."""
    updates: int
    """How many updates of its devices it has brought into the model."""

    def send(self, item: gateway_coding.Item) -> None: ...
    def deny(self, refusal: Refused, *, ticket: int = 0, device: int = 0) -> None: ...
    def start_task(self, work: Coroutine[Any, Any, None]) -> None: ...


class RelayedDevice:
    """The session of a device that is connected to a gateway. It has the methods of an OpenSession.

    It receives the answer to the device's update without a future, which would cost a turn of the event loop.
    """

    def __init__(
        self, connection: GatewaySender, ticket: int, admission: ServerAdmission, credential: bytes
    ) -> None:
        self.ticket, self.admission, self.credential = ticket, admission, credential
        self.meter = Meter()
        self.device: Device | None = None
        """None until it is admitted."""
        self.alive_answer: asyncio.Future[bool] | None = None
        """The answer to the last AliveQuery."""
        self.entered = False
        """Whether its Hello has come."""
        self.end_refusal: SessionRefused | None = None
        """Why the gateway must end the session. Nothing that the device sends afterwards counts."""
        self.ended = asyncio.Event()
        self._update: Update | None = None
        """The update that is not answered yet."""
        self._question: asyncio.Task[None] | None = None
        """The task that answers its last Ready."""
        self._known_order: Order | None = None
        """The operator's pause when its last update was accepted. Until that ends, it may send no update."""
        self._judging = asyncio.Lock()
        self._gateway = connection
        self._task_feed: TaskFeed | None = None
        """Its task feed, in a run of tasks."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def is_alive(self) -> bool:
        if self.alive_answer is None or self.alive_answer.done():
            self.alive_answer = asyncio.get_running_loop().create_future()
            self._send(gateway.AliveQuery(self._id))
        await asyncio.wait([self.alive_answer], timeout=_ALIVE_SECONDS)
        return self.alive_answer.done() and self.alive_answer.result()

    async def supersede(self) -> None:
        await self.drop(Superseded("a newer session has its name"))
        await self.ended.wait()

    async def drop(self, refusal: SessionRefused) -> None:
        self._send(gateway.End(self._id, refusal.code, str(refusal), refusal.seconds))
        if self.end_refusal is None:
            text = f"killed: its gateway {self.gateway_name} did not end its session in {_LEAVE_SECONDS:g} s"
            asyncio.get_running_loop().call_later(_LEAVE_SECONDS, self.end, text)
        self.end_refusal = refusal

    async def leave(self) -> None:
        self._send(gateway.End(self._id, "", "", 0))

    def enter(self, device: Device) -> None:
        """Note that the device is admitted."""
        self.device = device
        self._task_feed = self.admission.task_feed(device, self._send_record)
        if self._task_feed is not None:
            self._start_task(self._task_feed.follow())

    def count(self, ingress: int, egress: int) -> None:
        """Set the device's bytes at its socket so far. Raises Malformed if there are impossibly many.

        Bytes beyond _BYTES_LIMIT of all devices do not count, so one gateway cannot block the others.
        """
        if max(ingress, egress) > _BYTES_LIMIT:
            raise Malformed("a gateway counts more bytes than there can be")
        meter, total = self.meter, self.admission.host.traffic.total
        more = (
            min(max(0, ingress - meter.ingress), max(0, _BYTES_LIMIT - total.ingress)),
            min(max(0, egress - meter.egress), max(0, _BYTES_LIMIT - total.egress)),
        )
        total.ingress, total.egress = total.ingress + more[0], total.egress + more[1]
        meter.ingress, meter.egress = meter.ingress + more[0], meter.egress + more[1]

    # Items of its gateway

    @property
    def _admitted(self) -> Device:
        assert self.device is not None, "its gateway has its number"
        return self.device

    def take_update(self, item: gateway.DeviceUpdate) -> None:
        """Push an update, which the engine admits like one of a direct session.

        Raises Malformed if it is invalid, another one is unanswered, or the device is paused.
        """
        device, longest = self._admitted, self._gateway.longest_update
        self.count(item.ingress, item.egress)
        device.connection.mark_active()
        if len(item.update) > longest:
            raise Malformed(f"an update has at most {longest} bytes (limits.frame_bytes)")
        update = wire.decode(item.update, (Update,))
        assert isinstance(update, Update), "nothing else is taken"
        order = device.connection.order
        if order is not None and order is self._known_order:
            raise Malformed("a gateway continues a device that an operator has paused")
        if self._update is not None:
            raise Malformed("a gateway sends an update of a device whose previous update is not answered yet")
        self._update = update
        # The gateway sends the device the model, so the answer has none.
        push = Push(device.id, time.time(), replace(update, pull=False), item.update)
        try:
            self.admission.writer.put(push, self)
        except Refused as refusal:
            self.set_exception(refusal)

    def take_samples(self, item: gateway.Shared) -> None:
        samples = wire.decode(item.samples, (Samples,))
        assert isinstance(samples, Samples), "nothing else is taken"
        self._admitted.connection.mark_active()
        self.admission.host.relay.share(self._admitted.id, samples, item.samples)
        self._admitted.statistics.shared += samples.count

    def drop_samples(self, item: gateway.Spilled) -> None:
        statistics = self._admitted.statistics
        if item.samples > statistics.received:
            raise Malformed("a gateway has lost more samples than it was sent")
        statistics.received -= item.samples
        self.admission.host.relay.dropped += item.samples

    def take_telemetry(self, item: gateway.DeviceTelemetry) -> None:
        telemetry = wire.decode(item.telemetry, (Telemetry,))
        assert isinstance(telemetry, Telemetry), "nothing else is taken"
        self.admission.take_telemetry(self._admitted, telemetry, item.telemetry)

    def take_alive(self, item: gateway.AliveReply) -> None:
        if self.alive_answer is not None and not self.alive_answer.done():
            self.alive_answer.set_result(item.alive)

    def answer_ready(self, ready: gateway.Ready) -> None:
        """Answer its request for a task or its turn. Raises Malformed if it may not ask now."""
        if self._question is not None and not self._question.done():
            raise Malformed("a gateway sends Ready for a device whose previous Ready is not answered yet")
        if self.device is not None and self.admission.host.config.takes_turns:
            self._question = self._start_task(self._answer(self.admission.wait_for_turn(self.device)))
            return
        if (task_feed := self._task_feed) is None:
            raise Malformed("a gateway asks what to compute, and this is a run without tasks or turns")
        if ready.version is None:
            self._question = self._start_task(self._answer(task_feed.advance(counted=ready.counted)))
        else:
            self._question = self._start_task(self._answer(task_feed.begin(ready.version)))

    # The answer to its update

    def done(self) -> bool:
        return False

    def set_result(self, result: Accepted | PendingUpdate, /) -> None:
        """Note that its update is in the model, or waits for others. Tell its gateway."""
        update, device = self._end_update(), self._admitted
        in_tasks = self.admission.host.engine.tasks is not None
        if isinstance(result, PendingUpdate):
            self._answer_update(gateway.UpdateHeld(device.id))
            if not in_tasks:
                self._update = update
                result.on_settled(partial(settle, self))
                return
            result.on_settled(partial(self._count, update))
        elif in_tasks:  # after held updates of the same round, whose futures call back in the next loop turn
            asyncio.get_running_loop().call_soon(self._count, update, result)
        else:
            self._count(update, result)
        device.connection.has_updated = True
        self._known_order = device.connection.order
        if isinstance(result, Accepted):
            receipt, number = result.receipt, update.sequence
            details = receipt.version, result.staleness, receipt.moments, receipt.labels
            self._answer_update(gateway.UpdateTaken(device.id, number, *details))

    def set_exception(self, refusal: Refused, /) -> None:
        """Note that its update is refused, and send the refusal."""
        update = self._end_update()
        if not self.ended.is_set():
            self._gateway.deny(refusal, device=self._id)
        self._count(update, refusal)

    def _end_update(self) -> Update:
        update, self._update = self._update, None
        assert update is not None, "an answer is to an update"
        return update

    def _answer_update(self, item: gateway_coding.Item) -> None:
        if not self.ended.is_set():
            self._send(item)

    def _count(self, update: Update, outcome: Accepted | Refused) -> None:
        self._gateway.updates += isinstance(outcome, Accepted)
        if refusal := count_outcome(self.admission, self._admitted, update, outcome):
            self._gateway.start_task(self._judge(refusal))

    def refuse(self, refusal: Refused) -> None:
        """Note that a record was refused, and end the session if there are too many."""
        self.admission.note_refusal(self._admitted, refusal)
        self._gateway.start_task(self._judge(refusal))

    async def _judge(self, refusal: Refused) -> None:
        async with self._judging:  # a quarantined device is not judged again
            if self.end_refusal is None and not self.ended.is_set():
                verdict = await self.admission.judge(self._admitted, refusal)
                if isinstance(verdict, Quarantined):
                    await self.drop(verdict)

    # Orders, and the end

    def apply_order(self) -> None:
        if self.device is not None:  # before that, gateway.Entered has it
            self._send(gateway.Paused(self._id, self.pause_reason))

    def end(self, reason: str) -> None:
        """End the session at the leader. Idempotent."""
        if self.device is not None and self.device.connection.session is self:
            self.admission.leave(self.device, reason)
        if self.alive_answer is not None and not self.alive_answer.done():
            self.alive_answer.set_result(False)
        for task in self._tasks:
            task.cancel()
        self.ended.set()

    @property
    def pause_reason(self) -> str | None:
        """Why an operator has paused it. None: it is not paused."""
        order = None if self.device is None else self.device.connection.order
        return None if order is None else order.reason

    @property
    def gateway_name(self) -> str:
        """The gateway's name."""
        return self._gateway.name

    @property
    def _id(self) -> int:
        return 0 if self.device is None else self.device.id

    def _send(self, item: gateway_coding.Item) -> None:
        self._gateway.send(item)

    async def _send_record(self, record: Record) -> None:
        self._send(gateway.DeviceRecord(self.ticket, wire.encode(record)))

    async def _answer(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._send(gateway.Done(self.ticket))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        async def run() -> None:
            try:
                await work
            except Refused as refusal:  # the server stops
                self._gateway.deny(refusal, ticket=self.ticket)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
