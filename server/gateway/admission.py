"""A ticket at the leader: the admission of one session of this gateway.

A server's session decides by itself what a gateway's session asks its leader. The leader admits the device,
takes its updates, and says whose turn it is and what to compute. Each ticket has one question at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.roster import Device, OpenSession
from edgeflock.server.sessions import AdmittedDevice, PendingUpdate, Send, TaskFeed, settle
from edgeflock.server.sessions.conversation import DeviceEvents
from edgeflock.shared.errors import REFUSALS, Refused, SessionRefused, Superseded, Unavailable
from edgeflock.shared.identity import CHALLENGE, ROTATE
from edgeflock.shared.protocol import gateway, gateway_coding, wire
from edgeflock.shared.protocol.messages import Hello, Over, Receipt, Record, Stop, Task, Telemetry

log = logging.getLogger(__name__)

LOST = "this gateway has lost its leader"

Answer = gateway.AccessGranted | gateway.Entered | gateway.Done
A = TypeVar("A", gateway.AccessGranted, gateway.Entered, gateway.Done)

_TASK_RECORDS: Collection[type[Record]] = (Task, Over, Stop)
"""The records that devices receive in a run of tasks without a request."""


class GatewayAdmission(DeviceEvents):
    """One ticket: the admission of its session, and the task feed of its device.

    The leader counts updates and refusals, over all sessions, and quarantines devices.
    """

    def __init__(self, ticket: int, send: Callable[[gateway_coding.Item], bool], *, in_tasks: bool) -> None:
        """`send` sends an item to the leader; False: there is none. `in_tasks`: it is a run of tasks."""
        self.ticket, self._send, self._in_tasks = ticket, send, in_tasks
        self.device: Device | None = None
        """Its device, once the leader has admitted it."""
        self.end_reason = ""
        self.shares = False
        """Whether the device shares samples."""
        self.headers: Mapping[str, str] = {}
        """The headers of the answer to the device's request."""
        self._entering: tuple[OpenSession, str] | None = None
        """The session, and the name of its device."""
        self._is_lost = False
        """Whether the leader that knows this ticket is lost. The next one would not answer."""
        self._question: asyncio.Future[Any] | None = None
        self._result: asyncio.Future[Any] | None = None
        """The result of its device's one pending update."""
        self._records: asyncio.Queue[Record] = asyncio.Queue()
        """The leader's records for the device, in a run of tasks."""
        self._send_record: Send | None = None

    async def identify(self, bearer: str, path: str, certificate: bytes) -> None:
        """Let the leader identify who shows this secret. Raises its refusal."""
        request = gateway.AccessRequest(self.ticket, bearer, path, certificate)
        granted = await self._ask(request, gateway.AccessGranted)
        self.headers = {CHALLENGE: granted.challenge} if granted.challenge else {}
        if granted.rotate:
            self.headers = {**self.headers, ROTATE: "1"}

    async def _ask(self, item: gateway_coding.Item, kind: type[A]) -> A:
        """Return the leader's answer. Raises its refusal, or Unavailable."""
        self._question = question = asyncio.get_running_loop().create_future()
        try:
            if self._is_lost or not self._send(item):
                raise Unavailable(LOST)
            answer = await question
        finally:
            self._question = None
        assert isinstance(answer, kind), "it answers this item"
        return answer

    # The admission of its session

    async def admit(self, session: OpenSession, hello: Hello, frame: bytes) -> AdmittedDevice:
        self._entering, self.shares = (session, hello.device), hello.shares
        entered = await self._ask(gateway.Enter(self.ticket, frame), gateway.Entered)
        assert self.device is not None, "`enter` came with the answer"
        return AdmittedDevice(self.device, entered.sequence, entered.secret)

    def note_welcome(self, device: Device, version: int) -> None:
        """Do nothing: the leader knows."""

    async def wait_for_turn(self, device: Device) -> None:
        await self._ask(gateway.Ready(self.ticket, None, True), gateway.Done)

    def task_feed(self, device: Device, send: Send) -> TaskFeed | None:
        self._send_record = send
        return self if self._in_tasks else None

    def note_ahead(self, device: Device, detail: str) -> None:
        log.info("%s: %s", device.name, detail)

    def take_telemetry(self, device: Device, telemetry: Telemetry, frame: bytes) -> None:
        self._send(gateway.DeviceTelemetry(device.id, frame))

    def leave(self, device: Device, reason: str) -> None:
        device.connection.leave(reason)
        self.end_reason = reason

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        if not update:  # the leader knows of refused updates
            number = 0 if device is None else device.id
            self._send(gateway.DeviceRefused(number, refusal.code, str(refusal)))

    async def push(self, push: Push) -> Accepted | PendingUpdate:
        """Send the device's update. Return its result, durable at the leader. Raises the leader's refusal."""
        self._result = result = asyncio.get_running_loop().create_future()
        session = self._open_session
        traffic = (0, 0) if session is None else (session.meter.ingress, session.meter.egress)
        if self._is_lost or not self._send(gateway.DeviceUpdate(push.device, *traffic, push.frame)):
            raise Unavailable(LOST)
        outcome: Accepted | PendingUpdate = await result
        return outcome

    # The feed of its device's tasks, which are the leader's

    async def begin(self, version: int) -> None:
        await self._ask(gateway.Ready(self.ticket, version, True), gateway.Done)

    async def advance(self, *, counted: bool) -> None:
        await self._ask(gateway.Ready(self.ticket, None, counted), gateway.Done)

    async def follow(self) -> None:
        assert self._send_record is not None, "a feed begins with `task_feed`"
        while True:
            await self._send_record(await self._records.get())

    # Items of the leader

    def answer(self, answer: Answer) -> None:
        if self._question is not None:
            settle(self._question, answer)

    def enter(self, entered: gateway.Entered) -> bool:
        """Take the device that the leader has admitted. False: nobody waits for it any more."""
        if self._entering is None or self._question is None:
            return False
        session, name = self._entering
        self.device = Device(name, entered.device)
        self.device.connection.join(session)
        if entered.paused is not None:
            self.device.connection.pause(entered.paused)
        return True

    def take_result(self, item: gateway.UpdateTaken) -> None:
        receipt = Receipt(item.sequence, item.version, None, item.moments, item.labels)
        self._settle_update(Accepted(receipt, item.staleness))

    def hold_update(self, held: gateway.UpdateHeld) -> None:
        if self._result is not None and not self._result.done():
            pending = PendingUpdate.begin()
            settle(self._result, pending)
            self._result = pending.answer

    def deny(self, denied: gateway.Denied) -> None:
        refusal = REFUSALS.get(denied.code, Refused)(denied.detail)
        refusal.seconds = denied.seconds
        if not denied.ticket:
            self._settle_update(refusal)
        elif self._question is not None:
            settle(self._question, refusal)

    def take_record(self, message: gateway.DeviceRecord) -> None:
        """Pass on a record to the device. Raises Malformed if its kind is not sent to devices."""
        self._records.put_nowait(wire.decode(message.record, _TASK_RECORDS))

    def set_paused(self, paused: gateway.Paused) -> None:
        assert self.device is not None, "only a device can be paused"
        if paused.reason is not None:
            self.device.connection.pause(paused.reason)
        elif self.device.connection.order is not None:
            self.device.connection.resume()

    async def end(self, end: gateway.End) -> None:
        """End the session, because the leader says so."""
        if (session := self._open_session) is None:
            return
        kind = REFUSALS.get(end.code)
        if kind is None or not issubclass(kind, SessionRefused):
            await session.leave()
        elif kind is Superseded:
            await session.supersede()
        else:
            refusal = kind(end.detail)
            refusal.seconds = end.seconds
            await session.drop(refusal)

    async def answer_alive(self, query: gateway.AliveQuery) -> None:
        """Tell the leader whether the device's line is alive."""
        session = self._open_session
        self._send(gateway.AliveReply(query.device, session is not None and await session.is_alive()))

    def fail(self) -> None:
        """Refuse all that waits or comes, because the leader is lost."""
        self._is_lost = True
        for future in (self._question, self._result):
            if future is not None:
                settle(future, Unavailable(LOST))

    async def close(self) -> None:
        """End the session, because the leader is lost or this gateway stops."""
        if (session := self._open_session) is not None:
            await session.leave()

    @property
    def _open_session(self) -> OpenSession | None:
        return None if self.device is None else self.device.connection.session

    def _settle_update(self, outcome: Accepted | Refused) -> None:
        if self._result is not None:
            result, self._result = self._result, None
            settle(result, outcome)
