"""What each record of an admitted device gets: the server's half of docs/protocol.md.

It has no socket, no clock and no tasks of its own: it awaits only its queue, its admission and its port. A
session (session.py), at a server or a gateway, and the link of an emulated device hold one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, requested_slice
from edgeflock.server.roster import Device
from edgeflock.server.sessions.answers import PendingUpdate
from edgeflock.server.sessions.context import SessionContext, UpdateQueue
from edgeflock.server.sessions.task_feed import TaskFeed
from edgeflock.shared.errors import (
    AlreadyComputed,
    Quarantined,
    Refused,
    RunComplete,
    SessionRefused,
    StepTooLarge,
    TooManyRefused,
    UnexpectedRecord,
)
from edgeflock.shared.protocol.messages import (
    GOODBYES,
    Goodbye,
    Model,
    Pull,
    Record,
    Refusal,
    Samples,
    SecureSum,
    Stop,
    Telemetry,
    Update,
)
from edgeflock.shared.secure_sum.messages import SumStep

T = TypeVar("T")
R = TypeVar("R", bound=Refused)

UNANSWERED = (Samples, Telemetry, Goodbye)
"""Records that a device may send at any time, as they need no answer."""


class DevicePort(Protocol):
    """The way to the device: its WebSocket, or an emulated link."""

    async def send(self, record: Record) -> None: ...

    async def send_octets(self, kind: type[Record], octets: bytes) -> None:
        """Send an encoded record of this kind."""

    async def wait(self, awaited: Awaitable[T], take: Callable[[Record, bytes], None]) -> T:
        """Return the result of `awaited`, which may take long. `take` gets what comes meanwhile."""

    def charge_numbers(self, numbers: int) -> None:
        """Charge the device's rate limit for so many numbers of the model."""


class DeviceEvents(Protocol):
    """What becomes of a device between its Welcome and its end: the part of an admission for this.

    Of most, nothing is noted by default.
    """

    async def wait_for_turn(self, device: Device) -> None:
        """Wait while the device is outside the cohort (coordination/cohort.py), or has no privacy left.

        Raises Refused if its turn will not come.
        """

    def mark_waiting(self, device: Device, *, waits: bool) -> None:
        """Note that the device waits for others, or does so no longer."""
        return

    def count_update(self, device: Device, update: Update, staleness: int) -> None:
        """Count an accepted update, unless it was counted before."""
        return

    def count_duplicate(self, device: Device) -> None:
        """Count an update of a task that another device had computed before."""
        return

    def take_telemetry(self, device: Device, telemetry: Telemetry, frame: bytes) -> None:
        """Take the device's telemetry."""
        return

    def note_ahead(self, device: Device, detail: str) -> None:
        """Note that the device says that it holds a version which the run has not reached."""
        return

    def note_refusal(self, device: Device | None, refusal: Refused, *, update: bool = False) -> None:
        """Note a refusal. `update`: it is of an update, not of another record."""

    async def judge(self, device: Device, refusal: R) -> R | Quarantined:
        """Return the refusal to send: a quarantine if the device was refused too often, else `refusal`."""
        return refusal


def count_outcome(
    events: DeviceEvents, device: Device, update: Update, outcome: Accepted | Refused
) -> Refused | None:
    """Count what became of an update. Return the refusal if its reason lies with the device."""
    if isinstance(outcome, Accepted):
        events.count_update(device, update, outcome.staleness)
    elif isinstance(outcome, AlreadyComputed):
        events.count_duplicate(device)
    elif not isinstance(outcome, RunComplete | SessionRefused):
        events.note_refusal(device, outcome, update=True)
        return outcome
    return None


class Conversation:
    """The conversation of one session. `answer` raises SessionRefused to end it."""

    def __init__(
        self,
        host: SessionContext,
        queue: UpdateQueue,
        events: DeviceEvents,
        port: DevicePort,
        device: Device,
        tasks: TaskFeed | None,
        on_goodbye: Callable[[str], None] = lambda reason: None,
        too_large_limit: float = 3,
    ) -> None:
        """`tasks` is the device's feed, in a run of tasks.

        `on_goodbye` is called with the reason (frames.LEFT) of a device that says Goodbye. `too_large_limit`
        is how many updates in a row, refused as too large a step, end the session.
        """
        self._host, self._queue, self._events, self._port = host, queue, events, port
        self._device, self._tasks = device, tasks
        self._on_goodbye, self._too_large_limit = on_goodbye, too_large_limit
        self._too_large = 0
        """Updates that were refused as too large a step since the last accepted one."""

    async def answer(self, record: Record, frame: bytes) -> None:
        """Take a record, whose bytes are `frame`, and send its answer if it needs one."""
        if isinstance(record, UNANSWERED):
            self._take_unanswered(record, frame)
        elif isinstance(record, Pull):
            await self._answer_pull(record)
        elif isinstance(record, SecureSum):
            await self._answer_sum(record)
        else:
            assert isinstance(record, Update), "nothing else is taken"
            await self._answer_update(record, frame)

    async def _answer_pull(self, pull: Pull) -> None:
        if self._host.config.takes_turns:
            try:
                await self._wait(self._events.wait_for_turn(self._device))
            except RunComplete as complete:
                return await self._port.send(Stop(str(complete)))
        await self._wait_while_paused()
        model = await self._make_model(pull)
        await self._send_samples()
        await self._port.send(model)
        if self._tasks is not None:
            await self._tasks.begin(model.version)

    async def _answer_update(self, update: Update, frame: bytes) -> None:
        if self._host.sums is not None:
            raise UnexpectedRecord("this run sums in secret, and takes no update of a single device")
        device, is_counted = self._device, True
        count = partial(count_outcome, self._events, device, update)
        push = Push(device.id, device.connection.last_seen, update, frame)
        try:
            outcome = await self._queue.push(push)
            if isinstance(outcome, PendingUpdate) and self._tasks is None:
                outcome = await self._wait(outcome.answer)  # which may be long: for others
        except RunComplete as complete:
            return await self._port.send(Stop(str(complete)))
        except SessionRefused:
            raise
        except Refused as refusal:
            count(refusal)
            if not isinstance(refusal, AlreadyComputed) or self._tasks is None:  # a leader may be at fault
                return await self._refuse_update(update, refusal)
            is_counted = False
        else:
            device.connection.has_updated = True
            self._too_large = 0
            if isinstance(outcome, PendingUpdate):
                outcome.on_settled(count)
            else:
                count(outcome)
        if is_newer := device.connection.order is not None:
            await self._wait_while_paused()
        if self._tasks is not None:
            await self._send_samples()
            return await self._tasks.advance(counted=is_counted)
        assert isinstance(outcome, Accepted), "only an update of a task is answered before it applies"
        receipt = outcome.receipt
        if (is_newer and receipt.model is not None) or (update.pull and self._host.adds_model):
            receipt = replace(receipt, model=await self._make_model(update))
        await self._send_samples()
        await self._port.send(receipt)

    async def _answer_sum(self, message: SecureSum) -> None:
        device, sums = self._device, self._host.sums
        if sums is None:
            raise UnexpectedRecord("this run has no secure sums: send updates")
        if message.step == SumStep.KEYS:  # until the sum has enough devices
            self._events.mark_waiting(device, waits=True)
        try:
            answer = await self._wait(sums.take(device.id, device.connection.last_seen, message))
        except RunComplete as complete:
            return await self._port.send(Stop(str(complete)))
        except SessionRefused:
            raise
        except Refused as refusal:
            self._events.note_refusal(device, refusal, update=True)
            return await self._port.send(Refusal(refusal.code, str(refusal), None, refusal.seconds))
        finally:
            self._events.mark_waiting(device, waits=False)
        if answer.applied is not None:
            device.connection.has_updated = True
            update, accepted = answer.applied
            count_outcome(self._events, device, update, accepted)
        await self._port.send(answer.record)

    async def _refuse_update(self, update: Update, refusal: Refused) -> None:
        """Send the refusal, or raise the one that ends the session because of it."""
        if isinstance(verdict := await self._events.judge(self._device, refusal), Quarantined):
            raise verdict from refusal
        self._too_large += isinstance(refusal, StepTooLarge)
        if self._too_large == self._too_large_limit:
            raise TooManyRefused(
                f"{self._too_large} updates in a row would have broken the model: {refusal}"
            ) from refusal
        await self._port.send(Refusal(refusal.code, str(refusal), update.sequence, refusal.seconds))

    async def _wait_while_paused(self) -> None:
        """Wait while an operator pauses the device.

        An update sent before counts. The device only waits longer for its answer.
        """
        while (order := self._device.connection.order) is not None:
            await self._wait(order.ended.wait())

    async def _make_model(self, query: Pull | Update) -> Model:
        engine, device = self._host.engine, self._device
        version = engine.published.version
        if query.base is not None and query.base > version:
            # Any device may claim any version, so this only notes an event (docs/security.md).
            detail = (
                f"it holds version {query.base:,}, the run is at {version:,}; is the journal an old copy?"
            )
            self._events.note_ahead(device, detail)
        part = requested_slice(query, engine.layout) if isinstance(query, Pull) else None
        if isinstance(query, Pull):
            if not device.connection.has_updated:  # one pull is free after each accepted update
                self._port.charge_numbers(engine.layout.size if part is None else part.stop - part.start)
            device.connection.has_updated = False
        return await self._queue.call(lambda: engine.outlet.model(query.base, query.held, device.id, part))

    async def _wait(self, awaited: Awaitable[T]) -> T:
        return await self._port.wait(awaited, self._take_early)

    def _take_early(self, record: Record, frame: bytes) -> None:
        """Take a record that comes before the answer to the last one, so that it must need none."""
        if not isinstance(record, UNANSWERED):
            raise UnexpectedRecord("a Pull or an Update is not answered yet: wait for the answer")
        self._take_unanswered(record, frame)

    def _take_unanswered(self, record: Samples | Telemetry | Goodbye, frame: bytes) -> None:
        device = self._device
        if isinstance(record, Samples):
            self._host.relay.share(device.id, record, frame)
            device.statistics.shared += record.count
        elif isinstance(record, Goodbye):
            self._on_goodbye(_goodbye_reason(record.reason))
        else:
            self._events.take_telemetry(device, record, frame)

    async def _send_samples(self) -> None:
        """Send the samples that others have shared. An answer follows at once, for which the device reads."""
        for count, frame in self._host.relay.take(self._device.id):
            await self._port.send_octets(Samples, frame)
            self._device.statistics.received += count


def _goodbye_reason(reason: str) -> str:
    """Return the reason as in frames.LEFT. One that GOODBYES lacks means that the owner retires it."""
    if reason.startswith(GOODBYES):
        return reason
    return f"retired: {reason}" if reason else "retired"
